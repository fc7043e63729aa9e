"""The stories about queues on the real cluster, with the definition and the rights of the manifests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from extender.cli import move, queue_verbs
from extender.cli.errors import CommandError
from tests.cluster.api import ApiError
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare
from tests.cluster.process import wait_for
from tests.cluster.world import MACHINES, RealWorld
from tests.scenarios import queue_stories
from tests.scenarios.gangs import all_run, until
from tests.scenarios.queue_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.queue_stories import QUEUE, a_queue, known, pods
from tests.scenarios.stories import refused_with

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


async def test_the_commands_write_queues_and_move_pods_by_the_users_own_rights(world: RealWorld) -> None:
    cluster, admin = world.cluster, str(world.cluster.kubeconfig)
    made = queue_verbs.manifest("stopped", {"capability": {"gpus": "4"}})
    assert b'"stopped"' in await queue_verbs.create(made, admin, "", dry=True)
    assert await world.get(*QUEUE, "stopped") is None
    await queue_verbs.create(made, admin, "", dry=False)
    await world.create(a_queue("open"))
    await known(world, "stopped", "open")
    cluster.kubectl("create", "role", "requeuer", "--verb=get,patch", "--resource=pods")
    cluster.kubectl("create", "rolebinding", "requeuer", "--role=requeuer", "--user=bo")
    bo = cluster.plane.user_kubeconfig("bo")
    wait_for(lambda: "yes" in cluster.kubectl("auth", "can-i", "patch", "pods", kubeconfig=bo), 30, "rights")
    with pytest.raises(CommandError, match=r"the API server refuses: .*cannot patch resource .queues."):
        await queue_verbs.close("stopped", str(bo), "", closed=True)
    await queue_verbs.close("stopped", admin, "", closed=True)
    await until(world, lambda: is_closed(world, "stopped"), "the queue is closed")
    (waits,) = pods("waits", 1, 1, "stopped")
    await world.create_pod(waits)
    assert "queue stopped is closed" in await refused_with(world, "waits-0")
    asked = move.Asked("default/waits-0", "open", f"http://127.0.0.1:{world.sharing.pair.status}", str(bo), "")
    await asyncio.to_thread(move.pod, asked, lambda _: None)
    await all_run(world, ["waits-0"])
    with pytest.raises(CommandError, match=r"pod default/waits-0 is bound on .*: only pending pods"):
        await asyncio.to_thread(move.pod, asked, lambda _: None)


async def is_closed(world: RealWorld, name: str) -> bool:
    found = await world.get(*QUEUE, name)
    return found is not None and found["status"].get("state") == "Closed"
