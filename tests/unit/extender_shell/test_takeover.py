"""Two schedulers' extenders and one Lease: only the holder acts, and with fresh books."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from extender.cluster import leadership
from extender.server import run
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import NAMESPACES
from protos.contract import names
from tests.unit.extender_shell import world
from tests.unit.extender_shell.world import ADMIN, World, add_node, add_pod, given, hold_lease, until

RIVAL = ("volcano-system", "volcano")
RENEWALS = itertools.count()


class Holder:
    """A scheduler that holds the Lease and renews it, as long as it is let."""

    def __init__(self, api: Api) -> None:
        self.api, self.name, self.transitions = api, "", 0

    def take(self, name: str) -> None:
        self.name = name
        self.transitions += 1
        hold_lease(self.api, self.name, next(RENEWALS), self.transitions)

    async def renew(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            if self.name:
                hold_lease(self.api, self.name, next(RENEWALS), self.transitions)


@pytest.fixture
async def lease() -> AsyncIterator[Holder]:
    holder = Holder(Api())
    add_node(holder.api, "node-a", gpus=2)
    renewing = asyncio.create_task(holder.renew())
    yield holder
    renewing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await renewing


def elected(api: Api, **more: Any) -> Any:
    settings: dict[str, Any] = {"leader_election": "scheduler", "lease_identity_prefix": "us_"} | more
    return world.world(api, **settings)


async def placed(cluster: World, name: str) -> str:
    pod = add_pod(cluster.api, name, mem=10)
    await cluster.filter(pod, ["node-a"])
    return await cluster.bind(pod, "node-a")


async def test_the_holder_of_the_lease_binds(lease: Holder) -> None:
    lease.take("us_1")
    async with elected(lease.api) as cluster:
        await cluster.ready()
        assert await placed(cluster, "p1") == ""
        assert cluster.extender.metrics.registry.get_sample_value("gangshare_leader") is not None


async def test_another_replica_is_ready_but_answers_503_and_writes_nothing(lease: Holder) -> None:
    lease.take("them_1")
    async with elected(lease.api) as cluster:
        await cluster.ready()
        cluster.extender.gate._patience_s = 0.3
        pod = add_pod(cluster.api, "p1")
        body = {"Pod": pod, "NodeNames": ["node-a"]}
        status, words = await cluster.ask("/scheduler/filter", body)
        assert (status, words) == (503, "the scheduler's Lease is held by them_1")
        assert cluster.server.writes == []


async def test_a_missing_lease_has_no_holder(lease: Holder) -> None:
    async with elected(lease.api) as cluster:
        await cluster.ready()
        cluster.extender.gate._patience_s = 0.3
        status, words = await cluster.ask("/scheduler/filter", {"Pod": add_pod(cluster.api, "p1"), "NodeNames": []})
        assert (status, words) == (503, "the scheduler's Lease has no holder")


async def test_a_bind_under_a_lease_that_is_not_renewed_is_an_error(lease: Holder) -> None:
    lease.take("us_1")
    async with elected(lease.api, renew_deadline_s=1.5) as cluster:
        await cluster.ready()
        assert await placed(cluster, "p1") == ""
        lease.name = ""  # the scheduler hangs
        await until(lambda: not cluster.extender._permission.leads, "the Lease counts no more")
        before = len(cluster.server.writes)
        error = await placed(cluster, "p2")
        assert error == "nothing was written: us_1 did not renew the scheduler's Lease within 1.5 s"
        assert cluster.pod("p2")["spec"].get("nodeName") is None
        assert len(cluster.server.writes) == before
        lease.name = "us_1"
        assert await placed(cluster, "p3") == ""
        assert given(cluster.pod("p3")) == ["GPU-node-a-1"]


async def test_taking_over_begins_with_a_list_so_that_what_the_other_placed_is_in_the_books(lease: Holder) -> None:
    lease.take("them_1")
    async with elected(lease.api) as ours, world.world(lease.api) as theirs:
        await ours.ready()
        await theirs.ready()
        lists = ours.extender.metrics.registry.get_sample_value
        deaf(ours)
        assert await placed(theirs, "p1") == ""
        lease.take("us_1")
        pod = add_pod(lease.api, "p2", mem=10)
        answer = await ours.filter(pod, ["node-a"])
        assert answer["NodeNames"] == ["node-a"]
        assert lists("gangshare_lists_total", {"path": "/api/v1/pods"}) == 2
        assert await ours.bind(pod, "node-a") == ""
        assert given(ours.pod("p2")) == ["GPU-node-a-1"]


async def test_losing_the_lease_closes_the_gate_and_regaining_it_lists_again(
    lease: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease.take("us_1")
    async with elected(lease.api) as cluster:
        await cluster.ready()
        closed, close = list[str](), cluster.extender.gate.close

        def noted(why: str) -> None:
            closed.append(why)
            close(why)

        monkeypatch.setattr(cluster.extender.gate, "close", noted)
        assert await placed(cluster, "p1") == ""
        lease.take("them_1")
        await until(lambda: "them_1" in cluster.extender.gate.why, "the gate closed")
        lease.take("us_2")
        assert await placed(cluster, "p2") == ""
        value = cluster.extender.metrics.registry.get_sample_value
        assert value("gangshare_lists_total", {"path": "/api/v1/pods"}) == 2
        assert closed[-1] == "this extender is taking over and reads the cluster once more"
        monkeypatch.undo()


class Kept:
    """Bindings that the API server keeps until it is told to carry them out."""

    def __init__(self, cluster: World) -> None:
        self._carry_out = cluster.server.carry_out
        self.arrived, self.free = asyncio.Event(), asyncio.Event()
        cluster.server.fault = self._keep

    async def _keep(self, request: web.BaseRequest) -> web.StreamResponse | None:
        if not request.path.endswith("/binding"):
            return None
        self.arrived.set()
        await request.read()
        await self.free.wait()
        return await self._carry_out(request)


async def test_a_new_leader_reads_the_cluster_once_the_former_one_has_no_binding_under_way(lease: Holder) -> None:
    lease.take("them_1")
    async with elected(lease.api) as ours, elected(lease.api, lease_identity_prefix="them_") as theirs:
        await until(lambda: not theirs.extender.gate.why, "theirs leads")
        kept = Kept(theirs)
        late = asyncio.create_task(placed(theirs, "p1"))
        await kept.arrived.wait()
        lease.take("us_1")
        await until(lambda: "may be under way: them_ holds" in ours.extender.gate.why, "ours waits")
        await asyncio.sleep(1.0)
        assert "may be under way: them_ holds" in ours.extender.gate.why
        kept.free.set()
        assert await late == ""
        assert await placed(ours, "p2") == ""
        assert given(ours.pod("p1")) + given(ours.pod("p2")) == ["GPU-node-a-0", "GPU-node-a-1"]


async def test_an_extender_that_ends_with_a_binding_under_way_does_not_hand_over(
    lease: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "DRAIN_S", 0.2)
    lease.take("them_1")
    async with elected(lease.api, renew_deadline_s=2.0) as ours:
        async with elected(lease.api, lease_identity_prefix="them_", renew_deadline_s=2.0) as theirs:
            await until(lambda: not theirs.extender.gate.why, "theirs leads")
            kept = Kept(theirs)
            late = asyncio.create_task(placed(theirs, "p1"))
            await kept.arrived.wait()
            lease.take("us_1")
        with contextlib.suppress(OSError, aiohttp.ClientError, AssertionError):
            await late
        await until(lambda: "may be under way: them_ holds" in ours.extender.gate.why, "ours waits")
        await until(lambda: not ours.extender.gate.why, "the Lease has expired")


async def test_an_extender_that_was_refused_the_lease_says_so(lease: Holder) -> None:
    async def refuse(request: web.BaseRequest) -> web.StreamResponse | None:
        refused = request.method != "GET" and request.path.endswith("/leases")
        return web.json_response({"message": "leases is forbidden"}, status=403) if refused else None

    lease.take("us_1")
    async with elected(lease.api) as cluster:
        cluster.server.fault = refuse
        await until(lambda: "leases is forbidden" in cluster.extender.gate.why, "the reason")


def deaf(cluster: World) -> None:
    """Its watches tell nothing any more: a watch may lag behind by any time."""
    for feed in (cluster.extender.watches._nodes, *cluster.extender.watches._others):
        feed._reflector._decoded = lambda _: iter(())  # type: ignore[method-assign,assignment]


async def test_an_effect_waits_for_the_first_proof_of_the_lease(lease: Holder) -> None:
    lease.take("us_1")
    async with elected(lease.api) as cluster:
        await cluster.ready()
        pod = add_pod(cluster.api, "big", mem=99)
        assert not (await cluster.filter(pod, ["node-a"]))["NodeNames"]
        await until(lambda: world.events(cluster.api), "the event")
        assert names.EXTENDER in world.events(cluster.api)[0]["source"]["component"]


async def test_while_another_scheduler_serves_the_same_names_nothing_is_placed(
    lease: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "RIVAL_LOOK_S", 0.1)
    monkeypatch.setattr(leadership, "RIVAL_RENEWED_S", 1.0)
    lease.take("us_1")
    lease.api.create(NAMESPACES, "", {"metadata": {"name": "volcano-system"}}, ADMIN)
    hold_lease(lease.api, "left-behind", 0, where=RIVAL)
    async with elected(lease.api, conflicting_leases=("/".join(RIVAL),)) as cluster:
        await cluster.ready()
        assert await placed(cluster, "p1") == ""  # nobody renews that Lease
        renewing = asyncio.create_task(renew_rival(lease.api))
        await until(lambda: "renews the Lease volcano-system/volcano" in cluster.extender.gate.why, "the gate closed")
        cluster.extender.gate._patience_s = 0.1
        status, words = await cluster.ask("/scheduler/filter", {"Pod": add_pod(lease.api, "p2"), "NodeNames": []})
        assert (status, words[:45]) == (503, "another scheduler serves the same pods: vc_1 ")
        renewing.cancel()
        await until(lambda: not cluster.extender.gate.why, "the other is gone")
        cluster.extender.gate._patience_s = 3
        assert await placed(cluster, "p3") == ""


async def renew_rival(api: Api) -> None:
    for number in itertools.count(1):
        hold_lease(api, "vc_1", number, where=RIVAL)
        await asyncio.sleep(0.1)


async def test_replicas_apart_from_a_scheduler_elect_one_and_the_other_takes_over() -> None:
    api = Api()
    add_node(api, "node-a", gpus=2)
    async with world.world(api, leader_election="own", lease_name="ours") as second:
        async with world.world(api, leader_election="own", lease_name="ours") as first:
            await until(lambda: any(not replica.extender.gate.why for replica in (first, second)), "a leader")
            leader = second if first.extender.gate.why else first
            other = second if leader is first else first
            assert await placed(leader, "p1") == ""
            other.extender.gate._patience_s = 0.1
            body = {"Pod": add_pod(api, "p2"), "NodeNames": ["node-a"]}
            assert await other.ask("/scheduler/filter", body) == (503, "another extender holds the Lease")
            assert [(await replica.get("/readyz"))[0] for replica in (leader, other)] == [200, 503]
        if leader is first:  # it is gone and has given the Lease back
            await until(lambda: not second.extender.gate.why, "the other leads")
        assert await placed(second, "p3") == ""
