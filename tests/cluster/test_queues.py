"""The stories about queues on the real cluster, with the definition and the rights of the manifests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.cluster.api import ApiError
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare
from tests.cluster.process import wait_for
from tests.cluster.world import MACHINES, RealWorld
from tests.scenarios import queue_stories
from tests.scenarios.queue_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.queue_stories import a_queue

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]
QUEUES, QUEUES_NAME = "/apis/gangshare.io/v1alpha1/queues", "queues.gangshare.io"


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    running = Gangshare(cluster, MACHINES).start()
    cluster.apply(queue_stories.definitions()[1:])  # Volcano's comes after the extender
    yield running
    running.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def world(world: RealWorld) -> AsyncIterator[RealWorld]:
    """No queue is left behind either."""
    yield world
    await queue_stories.tidy_queues(world)


async def test_nonsense_is_refused_where_it_is_written_or_told_on_the_queue(world: RealWorld) -> None:
    for spec in (
        {"weight": 0},
        {"parent": "odd"},
        {"capability": {"gpu": 4}},
        {"capability": {"gpus": "many"}},
        {"deserved": {"gpus": 8}, "capability": {"gpus": "4500m"}},
        {"guarantee": {"cpu": "2"}, "deserved": {"cpu": "1500m"}},
        {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In"}]}},
        {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists", "values": ["a"]}]}},
        {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Gt", "values": ["1"]}]}},
    ):
        with pytest.raises(ApiError):
            world.cluster.api.post(QUEUES, a_queue("odd", **spec))
    world.cluster.api.post(QUEUES, a_queue("odd", parent="nobody"))

    def told() -> bool:
        status = world.cluster.api.get(f"{QUEUES}/odd").get("status", {})
        conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
        return conditions == {"Accepted": "True", "Placed": "False", "WithinCapability": "True"}

    wait_for(told, 30, "the queue says that it is not where it wants to be")
    assert "its parent nobody does not exist" in world.cluster.kubectl("get", QUEUES_NAME, "odd", "-o", "wide")
