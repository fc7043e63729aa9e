"""What befalls a gang in the middle of its start, on real kubelets: it is planned anew, finished or undone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from protos.contract import names
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.gangshare import Gangshare
from tests.cluster.process import wait_for
from tests.cluster.replicas import EXTENDER, SHORT
from tests.cluster.standins.bindings import Bindings
from tests.cluster.witness import Witness
from tests.cluster.world import RealWorld, offered
from tests.scenarios import gangs
from tests.scenarios.gangs import (
    all_of,
    all_run,
    block_port,
    books_agree,
    books_of,
    bound,
    held,
    holds_nothing,
    pods,
    said,
    started_as_one,
    until,
    with_port,
)
from tests.scenarios.jobs.submitted import Submitted, controlled, gang, kept, operated, submit
from tests.scenarios.stories import T4, V100, delete, on
from tests.scenarios.world import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHOLE_S, HALF_S = 10.0, 30.0
"""Until a half gang is undone, and for how long none may be seen: a crash of ours and the Lease come on top."""
WHOLE = {names.WHOLE_GPU: 1}
TAINTED: Object = {"key": "example.com/trouble", "value": "yes"}
CLAIMS, VOLUMES = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    machines, args = {T4: "t4x4", V100: "dgx1-v100"}, [*EXTENDER, f"--gang-bind-timeout={WHOLE_S:g}"]
    running = Gangshare(cluster, machines, election=SHORT, extender_args=args)
    yield running.start()
    running.stop()


class Attended(RealWorld):
    """As by a kubelet, kube-scheduler is started again when it has ended since it was too slow to renew its Lease."""

    async def wait(self, holds: Callable[[], Awaitable[object]], timeout: float, what: str) -> None:
        async def attended() -> object:
            scheduler = self.sharing.pair.scheduler
            assert scheduler is not None
            if not scheduler.process.alive:
                scheduler.process.start()
            return await holds()

        await super().wait(attended, timeout, what)


@pytest_asyncio.fixture(loop_scope="module")
async def world(sharing: Gangshare) -> AsyncIterator[RealWorld]:
    found = Attended(sharing)
    yield found
    for node in sharing.plugins:
        await taint(found, node, None)
    await gangs.tidy(found)
    wait_for(lambda: offered(sharing), 30, "GPUs on every node")


@pytest.fixture
def bindings(cluster: Cluster) -> Iterator[Bindings]:
    with Bindings(cluster) as passing:
        yield passing


@pytest.fixture
def witness(cluster: Cluster) -> Iterator[Witness]:
    """It checks at the end what it has seen."""
    with Witness(cluster) as looking:
        yield looking
    looking.check(HALF_S)


async def taint(world: RealWorld, node: str, effect: str | None) -> None:
    """The node gets our taint with this effect, or loses it."""
    body = {"spec": {"taints": [{**TAINTED, "effect": effect}] if effect else None}}
    await asyncio.to_thread(world.cluster.api.patch, f"/api/v1/nodes/{node}", body)


async def stuck(world: RealWorld, count: int) -> Submitted:
    """A gang of which all but the last member are held: kube-scheduler keeps that one off both nodes."""
    await block_port(world, T4, V100)
    *plain, last = pods("stuck", count, WHOLE)
    job = controlled(gang("stuck", [*plain, with_port(last)]))
    await submit(world, job)

    async def all_but_one() -> bool:
        return len(await held(world, job.names)) == count

    await until(world, all_but_one, "everybody has a place")
    return job


async def planned(world: RealWorld) -> set[str]:
    """The nodes on which places are held."""
    return {pod["node"] for pod in (await books_of(world))["pods"] if pod["state"] == "held"}


async def test_a_taint_on_a_planned_node_has_a_gang_start_elsewhere(world: RealWorld, witness: Witness) -> None:
    job = await stuck(world, 3)
    (node,) = await planned(world)
    await taint(world, node, "NoSchedule")
    other = T4 if node == V100 else V100
    await delete(world, f"port-{other}")
    await all_run(world, job.names)
    assert {pod["spec"]["nodeName"] for pod in await all_of(world, job.names)} == {other}
    await started_as_one(world, job.names)


async def test_a_gang_that_a_taint_leaves_no_room_holds_nothing_until_it_is_gone(
    world: RealWorld, witness: Witness
) -> None:
    job = await stuck(world, 10)
    await taint(world, T4, "NoSchedule")
    await said(world, "default/stuck .*short by 2")
    await holds_nothing(world, job.names)
    await taint(world, T4, None)
    for node in (T4, V100):
        await delete(world, f"port-{node}")
    await all_run(world, job.names)
    await started_as_one(world, job.names)


async def test_members_that_a_taint_drives_off_between_two_bindings_are_made_good(
    world: RealWorld, bindings: Bindings, witness: Witness
) -> None:
    bindings.stop_after(2)
    async with operated(world, job := controlled(gang("driven", pods("driven", 4, WHOLE)))):
        await until(world, lambda: two_bound(world, job), "two members are bound")
        (node,) = {pod["spec"]["nodeName"] for pod in await all_of(world, job.names) if "nodeName" in pod["spec"]}
        await taint(world, node, "NoExecute")
        bindings.release()
        await all_run(world, job.names)
        assert node not in {pod["spec"]["nodeName"] for pod in await all_of(world, job.names)}
    await books_agree(world)


async def two_bound(world: RealWorld, job: Submitted) -> bool:
    return len(await bound(world, job.names)) == 2


@pytest.mark.parametrize("mode", ["Immediate", "WaitForFirstConsumer"])
@pytest.mark.parametrize("node", [T4, V100])
async def test_a_gang_with_a_volume_of_one_node_starts_there(
    world: RealWorld, witness: Witness, node: str, mode: str
) -> None:
    async with a_volume(world, node, mode):
        *plain, last = pods("pinned", 3, WHOLE)
        claimed = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
        job = gang("pinned", [*plain, {**last, "spec": {**last["spec"], **claimed}}])
        await submit(world, job)
        await all_run(world, job.names)
        await started_as_one(world, job.names)
        (pod,) = await all_of(world, ["pinned-2"])
        assert pod["spec"]["nodeName"] == node
        await gangs.tidy(world)


@contextlib.asynccontextmanager
async def a_volume(world: RealWorld, node: str, mode: str) -> AsyncIterator[None]:
    """A claim `data`, and one local volume for it."""
    api, only = world.cluster.api, {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    volume = {
        **only,
        "capacity": {"storage": "1Gi"},
        "local": {"path": str(world.cluster.dir)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    api.post(CLASSES, {**called("local"), "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode})
    api.post(VOLUMES, {**called("disk"), "spec": volume})
    api.post(CLAIMS, {**called("data"), "spec": {**only, "resources": {"requests": {"storage": "1Gi"}}}})
    yield
    for path in (f"{CLAIMS}/data", f"{VOLUMES}/disk", f"{CLASSES}/local"):
        api.delete(path)
    wait_for(lambda: not api.items(VOLUMES), 30, "no volumes")


def called(name: str) -> Object:
    return {"metadata": {"name": name}}


SHARE = 0.4
"""Of a node's processors that each asks: two fit, three do not."""


async def robbed(world: RealWorld, bindings: Bindings, **where: Any) -> Submitted:
    """Two members on their way to a node of which another scheduler takes processors before they are there."""
    cpu = {"cpu": f"{SHARE * await processors(world):.0f}m"}
    job = controlled(gang("robbed", pods("robbed", 2, {**WHOLE, **cpu}, **where)))
    bindings.stop_after(0)
    await submit(world, job)

    async def both_posted() -> bool:
        return len(bindings.kept) == 2

    await until(world, both_posted, "both Bindings are on their way")
    (node,) = {pod["node"] for pod in (await books_of(world))["pods"] if pod["name"] in job.names}
    thief = a_pod("thief", "sleep infinity", node=node)
    thief["spec"]["containers"][0]["resources"] = {"requests": cpu}
    world.cluster.create_pod({**thief, "metadata": {"name": "thief"}})
    await all_run(world, ["thief"])
    bindings.release()
    await until(world, lambda: refused(world, job), "the kubelet refuses a member")
    return job


async def processors(world: RealWorld) -> float:
    """Thousandths of a processor that a node has."""
    found = world.cluster.api.get(f"/api/v1/nodes/{T4}")["status"]["allocatable"]["cpu"]
    return float(found.removesuffix("m")) * (1 if found.endswith("m") else 1000)


async def refused(world: RealWorld, job: Submitted) -> bool:
    """Whether the kubelet had no processors left for a member."""
    return "OutOfcpu" in {pod["status"].get("reason") for pod in await all_of(world, job.names)}


async def test_a_member_whose_processors_another_scheduler_took_finds_others(
    world: RealWorld, bindings: Bindings, witness: Witness
) -> None:
    job = await robbed(world, bindings)
    async with kept(world, job):
        await all_run(world, job.names)
    assert len({pod["spec"]["nodeName"] for pod in await all_of(world, job.names)}) == 2
    await books_agree(world)


async def test_a_gang_that_another_scheduler_left_no_processors_is_undone_and_starts_when_there_are(
    world: RealWorld, bindings: Bindings, witness: Witness
) -> None:
    job = await robbed(world, bindings, **on(T4))
    async with kept(world, job):
        await said(world, "default/robbed .*short by 1")
        await holds_nothing(world, job.names)
        await delete(world, "thief")
        await all_run(world, job.names)
    await started_as_one(world, job.names)
    await books_agree(world)


async def lose_scheduler(world: RealWorld) -> None:
    await world.restart_scheduler(kill=True)


async def lose_both(world: RealWorld) -> None:
    await world.restart_scheduler(kill=True)
    await world.restart_extender(kill=True)


@pytest.mark.parametrize("lose", [lose_scheduler, lose_both])
async def test_a_gang_whose_members_are_held_starts_after_a_crash(
    world: RealWorld, witness: Witness, lose: Callable[[RealWorld], Awaitable[None]]
) -> None:
    job = await stuck(world, 5)
    await lose(world)
    for node in (T4, V100):
        await delete(world, f"port-{node}")
    await all_run(world, job.names)
    await started_as_one(world, job.names)
    await books_agree(world)


@pytest.mark.parametrize("lose", [lose_scheduler, lose_both])
async def test_a_gang_is_finished_after_a_crash_between_two_of_its_bindings(
    world: RealWorld, bindings: Bindings, witness: Witness, lose: Callable[[RealWorld], Awaitable[None]]
) -> None:
    bindings.stop_after(2)
    async with operated(world, job := controlled(gang("torn", pods("torn", 8, WHOLE)))):
        await until(world, lambda: two_bound(world, job), "two members are bound")
        await lose(world)
        bindings.release()
        await all_run(world, job.names)
    await started_as_one(world, job.names)
    await books_agree(world)


async def test_a_gang_of_which_some_bindings_fail_for_good_is_undone_and_starts_when_they_do_not(
    world: RealWorld, bindings: Bindings, witness: Witness
) -> None:
    unlucky = {"failing-2", "failing-3"}
    bindings.fails = unlucky.__contains__
    async with operated(world, job := controlled(gang("failing", pods("failing", 4, WHOLE)))):
        await until(world, lambda: two_bound(world, job), "two members are bound")
        first = {uid(pod) for pod in await all_of(world, job.names)}
        await until(world, lambda: undone(world, job, first), "the bound members are evicted")
        unlucky.clear()
        await all_run(world, job.names)
    await started_as_one(world, job.names)
    await books_agree(world)


async def undone(world: RealWorld, job: Submitted, uids: set[str]) -> bool:
    """Whether none of these is bound any more."""
    return not [pod for pod in await all_of(world, job.names) if "nodeName" in pod["spec"] and uid(pod) in uids]


def uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])
