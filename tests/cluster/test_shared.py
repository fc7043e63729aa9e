"""The stories about gangs in layout shared on a real cluster, whose one kube-scheduler serves everybody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protos.contract import names
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare
from tests.cluster.process import wait_for
from tests.cluster.world import MACHINES, offered
from tests.scenarios.shared_stories import *  # noqa: F403  # the stories are the tests of this module

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]
EXTENDER = [
    "--lease-name=kube-scheduler",
    "--scheduler-names=default-scheduler",
    "--bind-timeout=30",
    "--max-gang-size=500",
]


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """A cluster without a scheduler: its one scheduler is that of the pair."""
    with Cluster.up(nodes=2, scheduler=False) as running:
        yield running


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    running = Gangshare(cluster, MACHINES, layout="shared", extender_args=EXTENDER).start()
    wait_for(lambda: offered(running), 30, f"{names.WHOLE_GPU} on every node")
    yield running
    running.stop()
