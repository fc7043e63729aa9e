"""The stories about gangs on the real cluster: kube-apiserver, kube-scheduler, kubelets, containerd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, Pair
from tests.cluster.process import wait_for
from tests.cluster.world import RealWorld, offered
from tests.scenarios import gang_stories, podgroups
from tests.scenarios.gang_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.operator_stories import *  # noqa: F403
from tests.scenarios.stories import T4, V100

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]
SAMPLES = Path(__file__).parents[2] / "manifests" / "samples" / "gangs"


class Seeds(Gangshare):
    """Its kube-scheduler answers to the names of the schedulers that jobs were written for, too."""

    def scheduler_config(self, pair: Pair) -> dict[str, Any]:
        config = super().scheduler_config(pair)
        (ours,) = config["profiles"]
        return config | {"profiles": [ours, *({**ours, "schedulerName": name} for name in ("volcano", "kube-batch"))]}


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    running = Seeds(cluster, {T4: "t4x4", V100: "dgx1-v100"}).start()
    cluster.apply(podgroups.definitions())  # they come after the extender
    yield running
    running.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def world(sharing: Gangshare) -> AsyncIterator[RealWorld]:
    found = RealWorld(sharing)
    yield found
    await gang_stories.tidy(found)
    wait_for(lambda: offered(sharing), 30, "GPUs on every node")


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
async def test_every_sample_is_valid(world: RealWorld, path: Path) -> None:
    dry = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename", str(path)]
    assert "serverside-applied (server dry run)" in await asyncio.to_thread(world.cluster.kubectl, *dry)
