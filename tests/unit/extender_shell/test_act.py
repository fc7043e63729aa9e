"""The engine's effects on a real (embedded) API server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from extender.cluster.act import IN_FLIGHT, Actor
from extender.cluster.leadership import NotLeading, Permission
from extender.engine.types.effects import PodRef, Report, Requeue, SetAnnotation
from extender.faults import Faults
from extender.sim.apiserver.api import Api
from protos.contract import names
from protos.contract.reason import Reason
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from protos.kube.events import Recorder
from tests.unit.extender_shell.world import (
    Acting,
    FaultyServer,
    Json,
    acting,
    add_pod,
    events,
    read_pod,
    until,
    waiting,
)


class Bench:
    """An actor at work on one API server."""

    def __init__(self, of: Acting) -> None:
        self.server, self.api, self.actor, self.failed = of.server, of.server.api, of.actor, of.failed

    def pod(self, name: str) -> Json:
        return read_pod(self.api, name)

    def annotation(self, name: str, key: str) -> str | None:
        return self.pod(name)["metadata"].get("annotations", {}).get(key)  # type: ignore[no-any-return]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with acting() as at_work:
        yield Bench(at_work)


def ref(pod: Json) -> PodRef:
    return PodRef("default", pod["metadata"]["name"], pod["metadata"]["uid"])


async def test_a_requeue_sets_the_annotation_to_a_new_value_each_time(bench: Bench) -> None:
    pod = add_pod(bench.api, "p1")
    bench.actor.submit([Requeue(ref(pod))])
    first = await until(lambda: bench.annotation("p1", names.WAKE), "a wake")
    bench.actor.submit([Requeue(ref(pod))])
    await until(lambda: bench.annotation("p1", names.WAKE) != first, "another wake")
    assert {path for _, path in bench.server.writes} == {"/api/v1/namespaces/default/pods/p1/status"}


async def test_a_requeue_without_nomination_leaves_the_status_as_it_is(bench: Bench) -> None:
    pod = add_pod(bench.api, "p1")
    bench.actor.submit([Requeue(ref(pod), "node-7", nominate=False)])
    await until(lambda: bench.annotation("p1", names.WAKE), "a wake")
    assert "nominatedNodeName" not in bench.pod("p1")["status"]


async def test_the_wake_of_a_gated_pod_nominates_its_node_and_then_removes_our_gate_and_no_other(bench: Bench) -> None:
    gates = [{"name": "example.com/hold"}, {"name": names.PLAN_GATE}]
    pod = add_pod(bench.api, "p1", schedulingGates=gates)
    bench.actor.submit([Requeue(ref(pod), "node-7", gated=True)])
    await until(lambda: bench.pod("p1")["spec"]["schedulingGates"] == gates[:1], "our gate is gone")
    assert bench.pod("p1")["status"]["nominatedNodeName"] == "node-7"
    paths = [path.removeprefix("/api/v1/namespaces/default/pods/") for _, path in bench.server.writes]
    assert paths == ["p1/status", "p1"]
    bench.actor.submit([Requeue(ref(pod), gated=True)])
    await until(lambda: len(bench.server.writes) == 3, "its removal once more")
    bench.actor.submit([Requeue(PodRef("default", "p1", "the-former"), gated=True)])
    await until(lambda: len(bench.server.writes) == 4, "that of a former pod")
    assert bench.server.writes[-1][1].endswith("/p1")
    assert bench.failed == []


async def test_another_pod_of_the_same_name_is_not_touched(bench: Bench) -> None:
    add_pod(bench.api, "p1")
    bench.actor.submit([Requeue(PodRef("default", "p1", "the-former"))])
    await until(lambda: bench.server.writes, "the patch")
    other = add_pod(bench.api, "p2")
    bench.actor.submit([Requeue(ref(other))])
    await until(lambda: bench.annotation("p2", names.WAKE), "the other's wake")
    assert bench.annotation("p1", names.WAKE) is None
    assert bench.failed == []


async def test_a_pod_that_is_gone_is_dropped_in_silence(bench: Bench) -> None:
    bench.actor.submit([Requeue(PodRef("default", "never", "u"))])
    await until(lambda: bench.server.writes, "the patch")
    pod = add_pod(bench.api, "p1")
    bench.actor.submit([Requeue(ref(pod))])
    await until(lambda: bench.annotation("p1", names.WAKE), "the next one's wake")
    assert len([path for _, path in bench.server.writes if "/never/" in path]) == 1
    assert bench.failed == []


async def test_an_annotation_is_put_back_on_the_version_seen_only(bench: Bench) -> None:
    pod = add_pod(bench.api, "p1", annotations={names.ALLOCATION: "forged"})
    bench.actor.submit([SetAnnotation(ref(pod), names.ALLOCATION, "true", pod["metadata"]["resourceVersion"])])
    await until(lambda: bench.annotation("p1", names.ALLOCATION) == "true", "put back")
    bench.actor.submit([SetAnnotation(ref(pod), names.ALLOCATION, "old news", pod["metadata"]["resourceVersion"])])
    await until(lambda: len(bench.server.writes) == 2, "the second patch")
    bench.actor.submit(
        [SetAnnotation(ref(pod), names.ALLOCATION, None, bench.pod("p1")["metadata"]["resourceVersion"])]
    )
    await until(lambda: bench.annotation("p1", names.ALLOCATION) is None, "removed")
    assert bench.failed == []


async def test_a_report_becomes_an_event_with_sentence_and_numbers(bench: Bench) -> None:
    pod = add_pod(bench.api, "p1")
    reason = Reason("NoRoom", "no GPU with 24 GiB free", "freest: node-a GPU 3 with 16 GiB")
    bench.actor.submit([Report(ref(pod), reason), Report(ref(pod), Reason("Adopted", "fine"), warning=False)])
    await until(lambda: len(events(bench.api)) == 2, "two events")
    told = {event["reason"]: event for event in events(bench.api)}
    assert told["NoRoom"]["message"] == "no GPU with 24 GiB free: freest: node-a GPU 3 with 16 GiB"
    assert told["NoRoom"]["involvedObject"]["uid"] == pod["metadata"]["uid"]
    assert (told["NoRoom"]["type"], told["Adopted"]["type"]) == ("Warning", "Normal")


async def test_a_failure_that_passes_is_tried_again(bench: Bench) -> None:
    left = [web.Response(status=500), web.Response(status=503), web.Response(status=429)]

    async def fault(_: web.BaseRequest) -> web.StreamResponse | None:
        return left.pop() if left else None

    bench.server.fault = fault
    pod = add_pod(bench.api, "p1")
    bench.actor.submit([Requeue(ref(pod))])
    await until(lambda: bench.annotation("p1", names.WAKE), "the wake in the end")
    assert bench.failed == []


async def test_a_failure_that_stays_is_counted_and_let_go(bench: Bench) -> None:
    async def fault(request: web.BaseRequest) -> web.StreamResponse | None:
        return web.Response(status=403) if "/p1/" in request.path else None

    bench.server.fault = fault
    first, second = add_pod(bench.api, "p1"), add_pod(bench.api, "p2")
    bench.actor.submit([Requeue(ref(first)), Requeue(ref(second))])
    await until(lambda: bench.annotation("p2", names.WAKE), "the other's wake")
    await until(lambda: bench.failed == ["Requeue"], "the failure counted")


async def test_a_burst_stays_within_its_share_of_writes_and_equal_effects_are_one(bench: Bench) -> None:
    inside, most = 0, 0

    async def fault(request: web.BaseRequest) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.005)
        inside -= 1
        return None

    bench.server.fault = fault
    pods = [add_pod(bench.api, f"p{i}") for i in range(100)]
    for _ in range(3):
        bench.actor.submit([Requeue(ref(pod)) for pod in pods])
    await until(lambda: all(bench.annotation(f"p{i}", names.WAKE) for i in range(100)), "100 wakes")
    assert most == IN_FLIGHT
    assert len(bench.server.writes) == 100


async def test_notices_do_not_delay_effects_that_change_something(bench: Bench) -> None:
    pods = [add_pod(bench.api, f"p{i}") for i in range(50)]
    bench.actor.submit([Report(ref(pod), Reason("A", "b")) for pod in pods])
    bench.actor.submit([Requeue(ref(pod)) for pod in pods])
    await until(lambda: len(bench.server.writes) == 100, "everything is written")
    paths = [path for _, path in bench.server.writes]
    last_wake = max(i for i, path in enumerate(paths) if path.endswith("/status"))
    assert sum(path.endswith("/events") for path in paths[:last_wake]) < 25


async def test_without_leadership_no_effect_is_carried_out() -> None:
    class Nobody(Permission):
        def require(self) -> None:
            raise NotLeading("no")

    server, failed = FaultyServer(Api()), list[str]()
    await server.start()
    pod = add_pod(server.api, "p1")
    async with ApiClient(Credentials(server.url), permit=Nobody().require) as client:
        actor = Actor(
            client, Nobody(), Recorder(client, component="x", instance="y", clock=lambda: 0.0), failed.append, Faults()
        )
        running = asyncio.create_task(actor.run())
        actor.submit([Requeue(ref(pod)), Report(ref(pod), Reason("A", "b"))])
        await until(lambda: waiting(actor) == 0, "the queue is empty")
        running.cancel()
        await asyncio.wait([running])
    await server.stop()
    assert server.writes == []
    assert failed == []
