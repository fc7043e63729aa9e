"""The stories about gangs on the real cluster: kube-apiserver, kube-scheduler, kubelets, containerd."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, Pair
from tests.cluster.world import MACHINES, RealWorld
from tests.scenarios import podgroups
from tests.scenarios.gang_life_stories import *  # noqa: F403
from tests.scenarios.gang_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.operator_stories import *  # noqa: F403

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]
MANIFESTS = Path(__file__).parents[2] / "manifests"
SAMPLES = MANIFESTS / "samples" / "gangs"


class Seeds(Gangshare):
    """Its kube-scheduler answers to the names of the schedulers that jobs were written for, too."""

    def scheduler_config(self, pair: Pair) -> dict[str, Any]:
        config = super().scheduler_config(pair)
        (ours,) = config["profiles"]
        return config | {"profiles": [ours, *({**ours, "schedulerName": name} for name in ("volcano", "kube-batch"))]}


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    running = Seeds(cluster, MACHINES).start()
    cluster.apply(podgroups.definitions())  # they come after the extender
    cluster.apply(MANIFESTS / "components" / "fake" / "runtimeclass.yaml")  # samples name it
    yield running
    running.stop()


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
async def test_every_sample_is_valid(world: RealWorld, path: Path) -> None:
    dry = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename", str(path)]
    assert "serverside-applied (server dry run)" in await asyncio.to_thread(world.cluster.kubectl, *dry)
