"""The stories on the real cluster: kube-apiserver, kube-scheduler, kubelets, containerd."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare
from tests.cluster.process import wait_for
from tests.cluster.world import RealWorld, offered
from tests.scenarios.stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.stories import T4, V100, tidy

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    machines = {T4: "t4x4", V100: "dgx1-v100"}
    running = Gangshare(cluster, machines, plugin_args=["--cool-down=1"]).start()
    yield running
    running.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def world(sharing: Gangshare) -> AsyncIterator[RealWorld]:
    found = RealWorld(sharing)
    yield found
    await tidy(found)
    wait_for(lambda: offered(sharing), 30, "GPUs on every node")
