"""The stories about preemption on the real cluster: kube-apiserver, kube-scheduler, kubelets, containerd."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare
from tests.cluster.process import wait_for
from tests.cluster.world import RealWorld, offered
from tests.scenarios import gangs, queue_stories
from tests.scenarios.preemption_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.preemption_stories import ARGS, CLASSES
from tests.scenarios.stories import T4

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    cluster.apply(CLASSES)
    running = Gangshare(cluster, {T4: "t4x4"}, extender_args=ARGS).start()
    yield running
    running.stop()
    cluster.kubectl("delete", "priorityclasses", *(each["metadata"]["name"] for each in CLASSES))


@pytest_asyncio.fixture(loop_scope="module")
async def world(sharing: Gangshare) -> AsyncIterator[RealWorld]:
    found = RealWorld(sharing)
    yield found
    await gangs.tidy(found)
    await queue_stories.tidy_queues(found, queue_stories.QUEUE)
    wait_for(lambda: offered(sharing), 30, "GPUs on every node")
