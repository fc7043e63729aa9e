"""Binds that are held until a gang is all there, over real HTTP; the engine is told what to answer."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from extender.engine.cycle.engine import Engine
from extender.engine.types.effects import BindAnswer, Deny, Effect, Held, Open, PodRef, PostBinding, Refuse
from extender.engine.types.events import BindAbandoned, BindDone, Event, Leading
from extender.server import binds
from extender.sim.apiserver.api import Api
from protos.contract import names
from protos.contract.reason import Reason
from protos.kube.client import WRITES
from tests.unit.extender_shell import world
from tests.unit.extender_shell.test_takeover import Holder
from tests.unit.extender_shell.world import Json, World, add_pod, until

AGAIN = Reason("GangAgain", "gang default/g1 is planned again", "no member came into bind for too long")
ELSEWHERE = Refuse(Reason("GangStarting", "gang default/g1 starts with other pods or nodes first"))


class Barrier:
    """Holds every bind in the engine's place, until told otherwise."""

    def __init__(self, cluster: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.core = cluster.extender.core
        self.asked: list[tuple[str, str]] = []
        self.events: list[Event] = []
        self.answers: dict[tuple[str, str], BindAnswer] = {}
        self.held: dict[str, PodRef] = {}
        self._effects: list[Effect] = []
        self._step = cluster.extender.engine.step
        monkeypatch.setattr(cluster.extender.engine, "bind", self.bind)
        monkeypatch.setattr(cluster.extender.engine, "step", self.step)
        monkeypatch.setattr(cluster.extender.engine, "effects", self.effects)

    def bind(self, ref: PodRef, node: str, now: float, wall_ns: int = 0) -> BindAnswer:
        self.asked.append((ref.name, node))
        answer = self.answers.get((ref.name, node), Held())
        if isinstance(answer, Held):
            self.held[ref.uid] = ref
        return answer

    def step(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, BindAbandoned | BindDone | Leading):
            self.events.append(event)
        if event == Leading(False):
            self._effects += [Deny(ref, AGAIN) for ref in self.held.values()]
        return self._step(event, now) + self.effects()

    def effects(self) -> list[Effect]:
        found, self._effects = self._effects, []
        return found

    def open(self, *pods: Json, node: str = "node-a") -> None:
        self.do(*(Open(PostBinding(ref(pod), node, {names.ALLOCATION: "given"}, None)) for pod in pods))

    def do(self, *effects: Effect) -> None:
        self._effects += effects
        self.core.flush()

    async def waits(self, *pods: Json) -> None:
        """Until these pods are in bind."""
        await until(lambda: all((pod["metadata"]["name"], "node-a") in self.asked for pod in pods), "in bind")


def ref(pod: Json) -> PodRef:
    return PodRef("default", pod["metadata"]["name"], pod["metadata"]["uid"])


@pytest.fixture
def barrier(cluster: World, monkeypatch: pytest.MonkeyPatch) -> Barrier:
    return Barrier(cluster, monkeypatch)


async def gone(asking: "asyncio.Task[Any]") -> None:
    """Whoever asks hangs up."""
    asking.cancel()
    await asyncio.wait([asking])


async def test_a_held_bind_is_answered_when_it_is_opened_and_carries_what_the_engine_says(
    cluster: World, barrier: Barrier
) -> None:
    pod = add_pod(cluster.api, "p1")
    asking = asyncio.create_task(cluster.bind(pod, "node-a"))
    await barrier.waits(pod)
    answered, _ = await asyncio.wait([asking], timeout=0.2)
    assert not answered
    assert cluster.bindings("p1") == 0
    barrier.open(pod)
    assert await asking == ""
    assert cluster.pod("p1")["metadata"]["annotations"][names.ALLOCATION] == "given"
    assert barrier.events == [BindDone(pod["metadata"]["uid"], "bound")]


async def test_a_denied_bind_is_answered_with_the_sentence_and_nothing_is_written(
    cluster: World, barrier: Barrier
) -> None:
    pod = add_pod(cluster.api, "p1")
    asking = asyncio.create_task(cluster.bind(pod, "node-a"))
    await barrier.waits(pod)
    barrier.do(Deny(ref(pod), AGAIN))
    assert await asking == AGAIN.sentence
    assert cluster.bindings("p1") == 0
    assert barrier.events == []


async def test_the_last_bind_opens_the_others_at_once(cluster: World, barrier: Barrier) -> None:
    first, last = add_pod(cluster.api, "p1"), add_pod(cluster.api, "p2")
    asking = asyncio.create_task(cluster.bind(first, "node-a"))
    await barrier.waits(first)
    barrier._effects += [
        Open(PostBinding(ref(pod), "node-a", {names.ALLOCATION: "given"}, None)) for pod in (first, last)
    ]  # as an answer to the last one's bind leaves them behind
    assert await cluster.bind(last, "node-a") == ""
    assert await asking == ""
    assert cluster.bindings("p1") == cluster.bindings("p2") == 1


async def test_whoever_hangs_up_leaves_the_barrier_and_may_come_again(cluster: World, barrier: Barrier) -> None:
    pod = add_pod(cluster.api, "p1")
    asking = asyncio.create_task(cluster.bind(pod, "node-a"))
    await barrier.waits(pod)
    await gone(asking)
    await until(lambda: barrier.events, "told")
    assert barrier.events == [BindAbandoned(pod["metadata"]["uid"])]
    again = asyncio.create_task(cluster.bind(pod, "node-a"))
    await until(lambda: len(barrier.asked) == 2, "asked anew")
    barrier.open(pod)
    assert await again == ""


async def test_a_second_bind_joins_a_held_one_and_only_the_last_to_hang_up_leaves(
    cluster: World, barrier: Barrier
) -> None:
    pod = add_pod(cluster.api, "p1")
    first = asyncio.create_task(cluster.bind(pod, "node-a"))
    await barrier.waits(pod)
    second, third = (asyncio.create_task(cluster.bind(pod, "node-a")) for _ in range(2))
    await asyncio.sleep(0.2)
    await gone(first)
    await asyncio.sleep(0.2)
    assert barrier.events == []
    barrier.open(pod)
    assert await second == await third == ""
    assert len(barrier.asked) == 1
    assert cluster.bindings("p1") == 1


async def test_when_all_who_joined_hang_up_the_pod_leaves_once(cluster: World, barrier: Barrier) -> None:
    pod = add_pod(cluster.api, "p1")
    asking = [asyncio.create_task(cluster.bind(pod, "node-a")) for _ in range(2)]
    await barrier.waits(pod)
    await asyncio.sleep(0.2)
    for one in asking:
        await gone(one)
    await until(lambda: barrier.events, "told")
    await asyncio.sleep(0.1)
    assert barrier.events == [BindAbandoned(pod["metadata"]["uid"])]


async def test_on_another_node_the_engine_decides_and_the_held_one_stays(cluster: World, barrier: Barrier) -> None:
    barrier.answers["p1", "node-b"] = ELSEWHERE
    pod = add_pod(cluster.api, "p1")
    asking = asyncio.create_task(cluster.bind(pod, "node-a"))
    await barrier.waits(pod)
    assert await cluster.bind(pod, "node-b") == ELSEWHERE.reason.sentence
    barrier.open(pod)
    assert await asking == ""


async def test_a_bind_held_on_another_node_takes_the_place_of_the_former(cluster: World, barrier: Barrier) -> None:
    pod = add_pod(cluster.api, "p1")
    former = asyncio.create_task(cluster.bind(pod, "node-a"))
    await barrier.waits(pod)
    later = asyncio.create_task(cluster.bind(pod, "node-b"))
    assert await former == "the bind was abandoned: the scheduler stopped waiting for its answer, or asked again"
    barrier.open(pod, node="node-b")
    assert await later == ""
    assert cluster.pod("p1")["spec"]["nodeName"] == "node-b"
    assert [event for event in barrier.events if isinstance(event, BindAbandoned)] == []


async def test_opened_after_whoever_asked_hung_up_nothing_is_written(cluster: World, barrier: Barrier) -> None:
    pod = add_pod(cluster.api, "p1")
    barrier.open(pod)
    await until(lambda: barrier.events, "told")
    assert barrier.events == [BindDone(pod["metadata"]["uid"], "lost")]
    barrier.do(Deny(ref(pod), AGAIN))
    assert cluster.bindings("p1") == 0


async def test_hanging_up_after_the_bind_was_opened_changes_nothing(cluster: World, barrier: Barrier) -> None:
    arrived, go = asyncio.Event(), asyncio.Event()

    async def slow(request: web.BaseRequest) -> None:
        if request.path.endswith("/binding"):
            arrived.set()
            await go.wait()

    cluster.server.fault = slow
    pod = add_pod(cluster.api, "p1")
    asking = asyncio.create_task(cluster.bind(pod, "node-a"))
    await barrier.waits(pod)
    barrier.open(pod)
    await arrived.wait()
    await gone(asking)
    go.set()
    await until(lambda: cluster.pod("p1")["spec"].get("nodeName"), "bound all the same")
    await until(lambda: barrier.events, "told")
    assert barrier.events == [BindDone(pod["metadata"]["uid"], "bound")]


async def test_all_bindings_of_a_gang_are_written_side_by_side(cluster: World, barrier: Barrier) -> None:
    inside, most = 0, 0

    async def slow(request: web.BaseRequest) -> None:
        nonlocal inside, most
        if request.path.endswith("/binding"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.3)
            inside -= 1

    cluster.server.fault = slow
    pods = [add_pod(cluster.api, f"p{i}") for i in range(WRITES + 20)]
    asking = [asyncio.create_task(cluster.bind(pod, "node-a")) for pod in pods]
    await barrier.waits(*pods)
    barrier.open(*pods)
    assert set(await asyncio.gather(*asking)) == {""}
    assert most == WRITES


def stalled(cluster: World, name: str) -> asyncio.Event:
    """The Binding of this pod is not decided until that is set."""
    decided = asyncio.Event()

    async def slow(request: web.BaseRequest) -> None:
        if request.path.endswith(f"/{name}/binding"):
            await decided.wait()

    cluster.server.fault = slow
    return decided


async def two_held(cluster: World, barrier: Barrier) -> tuple[list[Json], list["asyncio.Task[str]"]]:
    """Two pods whose binds are held, p1 and p2, and who asks for them."""
    pods = [add_pod(cluster.api, name) for name in ("p1", "p2")]
    asking = [asyncio.create_task(cluster.bind(pod, "node-a")) for pod in pods]
    await barrier.waits(*pods)
    return pods, asking


async def test_members_are_answered_when_all_their_bindings_are_decided(cluster: World, barrier: Barrier) -> None:
    written: dict[str, float] = {}

    async def slow(request: web.BaseRequest) -> None:
        if request.path.endswith("/p2/binding"):
            await asyncio.sleep(0.3)
            written["p2"] = asyncio.get_running_loop().time()

    cluster.server.fault = slow
    pods, asking = await two_held(cluster, barrier)
    barrier.open(*pods)
    assert await asking[0] == ""
    assert asyncio.get_running_loop().time() >= written["p2"]
    assert await asking[1] == ""


async def test_a_member_is_answered_after_a_while_though_another_is_not_decided(
    cluster: World, barrier: Barrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binds, "TOGETHER_S", 0.1)
    decided = stalled(cluster, "p2")
    pods, asking = await two_held(cluster, barrier)
    barrier.open(*pods)
    assert await asking[0] == ""
    assert not asking[1].done()
    decided.set()
    assert await asking[1] == ""


@pytest.mark.parametrize(("calm_s", "told"), [(60.0, False), (0.1, True)])
async def test_what_is_seen_of_pods_waits_for_the_bindings_of_a_large_gang_for_a_while(
    cluster: World, barrier: Barrier, monkeypatch: pytest.MonkeyPatch, calm_s: float, told: bool
) -> None:
    monkeypatch.setattr(binds, "MANY", 2)
    monkeypatch.setattr(binds, "CALM_S", calm_s)
    decided = stalled(cluster, "p2")
    pods, asking = await two_held(cluster, barrier)
    barrier.open(*pods)
    await until(lambda: barrier.events, "the Binding that is decided")
    late = add_pod(cluster.api, "late")["metadata"]["uid"]
    if told:
        await until(lambda: late in cluster.extender.engine.pods, "told")
    else:
        await asyncio.sleep(0.3)
        assert late not in cluster.extender.engine.pods
    decided.set()
    assert [await one for one in asking] == ["", ""]
    await until(lambda: late in cluster.extender.engine.pods, "told")


async def test_a_gang_is_answered_while_a_binding_of_another_is_not_decided(
    cluster: World, barrier: Barrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binds, "TOGETHER_S", 60.0)
    decided = stalled(cluster, "p1")
    pods, asking = await two_held(cluster, barrier)
    barrier.open(pods[0])
    await asyncio.sleep(0)
    barrier.open(pods[1])
    assert await asyncio.wait_for(asking[1], 10) == ""
    assert not asking[0].done()
    decided.set()
    assert await asking[0] == ""


async def test_stopping_denies_what_is_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.world() as cluster:
        await cluster.ready()
        barrier = Barrier(cluster, monkeypatch)
        pod = add_pod(cluster.api, "p1")
        asking = asyncio.create_task(cluster.bind(pod, "node-a"))
        await barrier.waits(pod)
        cluster.stop.set()
        assert await asking == AGAIN.sentence
        assert cluster.bindings("p1") == 0


async def test_losing_the_lease_denies_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = Holder(Api())
    renewing = asyncio.create_task(holder.renew())
    holder.take("us_1")
    told = recorded(monkeypatch)
    async with world.world(holder.api, leader_election="scheduler", lease_identity_prefix="us_") as cluster:
        await cluster.ready()
        await until(lambda: not cluster.extender.gate.why, "the gate is open")
        barrier = Barrier(cluster, monkeypatch)
        pod = add_pod(cluster.api, "p1")
        asking = asyncio.create_task(cluster.bind(pod, "node-a"))
        await barrier.waits(pod)
        assert [event.yes for event in told if isinstance(event, Leading)] == [False, True]
        holder.take("them_1")
        assert await asking == AGAIN.sentence
        assert barrier.events == [Leading(False)]
        assert cluster.bindings("p1") == 0
        holder.take("us_2")
        await until(lambda: barrier.events[-1] == Leading(True), "told that we lead again")
    await gone(renewing)


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What every engine is told, from its beginning on."""
    told: list[Event] = []
    step = Engine.step

    def listening(self: Engine, event: Event, now: float) -> list[Effect]:
        told.append(event)
        return step(self, event, now)

    monkeypatch.setattr(Engine, "step", listening)
    return told


async def test_an_ordinary_bind_does_not_care_who_hangs_up(cluster: World, monkeypatch: pytest.MonkeyPatch) -> None:
    told = recorded(monkeypatch)
    pod = add_pod(cluster.api, "p1", mem=4)
    assert (await cluster.filter(pod, ["node-a"]))["NodeNames"] == ["node-a"]
    assert await cluster.bind(pod, "node-a") == ""
    assert BindDone(pod["metadata"]["uid"], "bound") in told
    assert not [event for event in told if isinstance(event, BindAbandoned)]
