"""Errors of ours over one object, in a whole process: it lives on, serves others, and says what it has set aside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from extender.cluster import kinds
from extender.cluster.act import Actor
from extender.cluster.bind import Binder
from extender.engine.cycle.engine import Engine
from extender.engine.cycle.recovery import Recovery
from extender.engine.cycle.upkeep import Upkeep
from extender.engine.state.observe import Observer
from extender.engine.state.running_pods import RunningPods
from extender.engine.types.effects import Requeue
from extender.engine.types.events import Event
from extender.faults import MOST_LOGGED, Faults
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import NODES, PODS
from protos.contract import names
from protos.kube.changes import Ref
from tests.unit.extender_shell import world as worlds
from tests.unit.extender_shell.test_act import ref
from tests.unit.extender_shell.world import ADMIN, World, acting, add_node, add_pod, given, until, world

pytestmark = pytest.mark.faults
ALL = ["node-a"]
MERGE = "application/merge-patch+json"


def poison(kind: type[Any], method: str, monkeypatch: pytest.MonkeyPatch, when: Callable[..., bool]) -> None:
    """This method fails where `when` says so of what it is given."""
    right = getattr(kind, method)

    def wrong(self: Any, *args: Any, **kwargs: Any) -> Any:
        if when(*args):
            raise KeyError("what nobody thought of")
        return right(self, *args, **kwargs)

    monkeypatch.setattr(kind, method, wrong)


def named(name: str) -> Callable[..., bool]:
    """Whether it is given the object of this name."""
    return lambda *args: any(getattr(getattr(arg, "metadata", None), "name", "") == name for arg in args)


def sample(metrics: str, line: str) -> float:
    (found,) = [each for each in metrics.splitlines() if each.startswith(line)]
    return float(found.rpartition(" ")[2])


async def metrics(cluster: World) -> str:
    return str((await cluster.get("/metrics"))[1])


async def served(cluster: World, name: str = "other") -> None:
    """Some other pod gets what it asks."""
    other = add_pod(cluster.api, name, mem=16)
    assert (await cluster.filter(other, ALL))["NodeNames"] == ALL
    assert await cluster.bind(other, "node-a") == ""
    assert await cluster.get("/readyz") == (200, "ok")


def touch(api: Api, name: str) -> None:
    api.patch(PODS, ("default", name), {"metadata": {"labels": {"touched": "yes"}}}, MERGE, ADMIN)


async def test_a_poison_pod_waits_alone_and_all_can_see_why(cluster: World, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(RunningPods, "see", monkeypatch, named("poison"))
    with capture_logs() as logs:
        pod = add_pod(cluster.api, "poison", mem=16)
        await until(lambda: list(cluster.extender.engine.quarantine.all()), "the pod is set aside")
        first = await cluster.filter(pod, ALL)
        for _ in range(5):
            assert await cluster.filter(pod, ALL) == first
        assert list(first["FailedAndUnresolvableNodes"].values()) == [
            "Gangshare had an internal error on this object; it is quarantined until it changes or is retried"
        ]
        await served(cluster)
    (told,) = [line for line in logs if line["event"] == "set_aside"]
    assert (told["kind"], told["object"], told["place"]) == ("pod", "default/poison", "PodSeen")
    assert "what nobody thought of" in told["traceback"]
    said = await metrics(cluster)
    assert sample(said, 'gangshare_quarantined{kind="pod"}') == 1
    assert sample(said, 'gangshare_faults_total{place="PodSeen"}') == 1
    await until(lambda: [e for e in worlds.events(cluster.api) if e["reason"] == "SetAside"], "the event")
    _, explained = await cluster.get("/explain/default/poison")
    assert explained["code"] == "SetAside"
    assert "KeyError" in explained["numbers"]
    _, everything = await cluster.get("/inspect")
    assert [(each["kind"], each["name"]) for each in everything["aside"]] == [("pod", "default/poison")]
    assert everything["problems"]["setAside"] == 1
    assert [(each["name"], each["code"]) for each in everything["waiting"]] == [("poison", "SetAside")]

    monkeypatch.undo()
    touch(cluster.api, "poison")
    await until(lambda: not list(cluster.extender.engine.quarantine.all()), "it is taken in again")
    assert (await cluster.filter(cluster.pod("poison"), ALL))["NodeNames"] == ALL


async def test_a_poison_pod_that_is_there_at_the_start_keeps_its_gpu_and_nobody_from_starting(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(api) as before:
        await before.ready()
        held = add_pod(before.api, "poison", mem=16)
        await before.filter(held, ALL)
        assert await before.bind(held, "node-a") == ""
    poison(RunningPods, "see", monkeypatch, named("poison"))
    async with world(api) as cluster:
        await cluster.ready()
        await served(cluster)
        assert set(given(cluster.pod("poison"))).isdisjoint(given(cluster.pod("other")))
        third = await cluster.filter(add_pod(cluster.api, "third", mem=16), ALL)
        assert third["NodeNames"] == []
        _, explained = await cluster.get("/explain/default/poison")
        assert explained["problem"].startswith("Gangshare had an internal error")


async def test_a_poison_node_takes_nobody_and_is_told_so(cluster: World, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(Observer, "node", monkeypatch, named("node-p"))
    add_node(cluster.api, "node-p", gpus=4)
    await until(lambda: list(cluster.extender.engine.quarantine.all()), "the node is set aside")
    await served(cluster)

    def about() -> list[Any]:
        return [e for e in worlds.events(cluster.api) if e["involvedObject"]["kind"] == "Node"]

    await until(about, "the event")
    assert (about()[0]["reason"], about()[0]["involvedObject"]["name"]) == ("SetAside", "node-p")
    monkeypatch.undo()
    cluster.api.patch(NODES, ("", "node-p"), {"metadata": {"labels": {"a": "b"}}}, MERGE, ADMIN)
    await until(lambda: not list(cluster.extender.engine.quarantine.all()), "it is taken in again")
    assert (await cluster.filter(add_pod(cluster.api, "p2"), ["node-p"]))["NodeNames"] == ["node-p"]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_a_question_that_breaks_in_the_shell_is_an_answer_in_words(
    cluster: World, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(Engine, verb, monkeypatch, named("poison"))
    pod = add_pod(cluster.api, "poison")
    body = {"Pod": pod, "NodeNames": ALL, "NodeNameToMetaVictims": {}}
    status, answer = await cluster.ask(f"/scheduler/{verb}", body)
    assert (status, answer) == (500, "Gangshare had an internal error; the pod is tried again")
    await served(cluster)


async def test_a_preempt_that_fails_in_the_engine_is_a_valid_answer_without_candidates(
    cluster: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = add_pod(cluster.api, "poison")
    await until(lambda: pod["metadata"]["uid"] in cluster.extender.engine.pods, "it is seen")
    poison(Observer, "ask", monkeypatch, named("poison"))
    victims = {"node-a": {"Pods": [{"UID": "x"}], "NumPDBViolations": 0}}
    status, answer = await cluster.ask("/scheduler/preempt", {"Pod": pod, "NodeNameToMetaVictims": victims})
    assert (status, answer) == (200, {"NodeNameToMetaVictims": {}})


async def test_a_bind_that_breaks_is_an_error_and_the_next_one_goes_through(
    cluster: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(Binder, "bind", monkeypatch, lambda place: place.pod.name == "poison")
    pod = add_pod(cluster.api, "poison", mem=16)
    await cluster.filter(pod, ALL)
    assert await cluster.bind(pod, "node-a") == "Gangshare had an internal error; the pod is tried again"
    await served(cluster)
    monkeypatch.undo()
    assert (await cluster.filter(pod, ALL))["NodeNames"] == ALL
    assert await cluster.bind(pod, "node-a") == ""
    assert set(given(cluster.pod("poison"))).isdisjoint(given(cluster.pod("other")))


async def test_a_watch_goes_on_after_an_object_that_breaks_it(cluster: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(ref: Ref, found: Any) -> Event | None:
        if ref.name == "poison":
            raise RuntimeError("poison")
        return kinds.PODS.seen(ref, found)

    (pods,) = cluster.extender.watches._others
    monkeypatch.setattr(pods, "_kind", msgspec.structs.replace(kinds.PODS, seen=seen))
    add_pod(cluster.api, "poison")
    await until(lambda: cluster.extender.metrics.faults.counted["feed"], "the error")
    await served(cluster)
    assert cluster.extender.watches.replayed.is_set()


async def test_an_effect_that_breaks_keeps_no_other_from_being_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    poison(Actor, "_requeue", monkeypatch, lambda pod, *_: pod.name == "poison")
    async with acting() as at_work:
        pods = [add_pod(at_work.server.api, name) for name in ("poison", "p1", "p2")]
        at_work.actor.submit([Requeue(ref(pod)) for pod in pods] * 40)

        def woken(name: str) -> bool:
            return names.WAKE in worlds.read_pod(at_work.server.api, name)["metadata"]["annotations"]

        await until(lambda: woken("p1") and woken("p2"), "the others")
        await until(lambda: at_work.failed, "it was given up")
        assert at_work.failed == ["Requeue"]


@pytest.mark.parametrize(("kind", "method"), [(Recovery, "settle"), (Upkeep, "run_slice"), (Engine, "effects")])
async def test_what_the_engine_cannot_set_aside_ends_nothing(
    cluster: World, kind: type[Any], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also nothing spins, and the log is not flooded."""
    poison(RunningPods, "see", monkeypatch, named("poison"))
    poison(kind, method, monkeypatch, lambda *_: True)
    with capture_logs() as logs:
        add_pod(cluster.api, "poison")
        await until(lambda: cluster.extender.metrics.faults.counted.total() > 3, "errors")
    told = [line for line in logs if line["event"] == "fault"]
    assert len(told) > 0
    assert cluster.running is not None
    assert not cluster.running.done()
    assert await cluster.get("/readyz") == (200, "ok")
    monkeypatch.undo()
    await served(cluster)


def test_faults_are_all_counted_and_a_few_are_told() -> None:
    clock = [0.0]
    faults = Faults(lambda: clock[0])
    with capture_logs() as logs:
        for _ in range(100):
            with faults.over("place", "object"):
                raise ValueError("x")
        clock[0] = 2.0
        with faults.over("place") as work:
            raise ValueError("y")
    assert work.failed
    assert faults.counted == {"place": 101}
    assert len(logs) == MOST_LOGGED + 1


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, asyncio.CancelledError])
def test_what_is_no_error_over_an_object_goes_through(error: type[BaseException]) -> None:
    with pytest.raises(error), Faults().over("place"):
        raise error


async def test_a_verb_that_is_not_read_is_no_fault(cluster: World) -> None:
    status, _ = await cluster.ask("/scheduler/filter", b"{")
    assert status == 400
    assert not cluster.extender.metrics.faults.counted
