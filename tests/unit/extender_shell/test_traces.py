"""The traces of pods: what the spans tell, as a collector of OpenTelemetry gets them."""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from extender.engine.types.effects import PodRef
from extender.server import traces
from extender.server.traces.stories import BIND, GANG, MOST_PARTS, MOST_PODS, ROOT, WRITE, Span, Stories, Story
from extender.settings import Settings
from extender.sim.apiserver.api import Api
from protos.contract import names
from protos.contract.reason import Reason
from protos.contract.shared_settings import SettingsError
from tests.unit.extender_shell.world import add_node, add_pod, until, world

REF = PodRef("ml", "train", "3f2b7c6e-0d5c-4c0c-9d1a-2f1f7a5a9b10")
FULL, LATE = Reason("NoRoom", "no node has 16 GiB free"), Reason("QueueFull", "the queue is full")


def names_of(spans: list[Span]) -> list[str]:
    return [span.name for span in spans]


def followed(**about: str) -> Stories:
    stories = Stories(1.0)
    stories.begin(REF, about, 1)
    return stories


def bound(stories: Stories, now: int) -> Story:
    stories.bind_asked(REF.uid, "n1", now)
    stories.released(REF.uid, now + 1)
    story = stories.bind_ended(REF.uid, "Bound", now + 3)
    assert story is not None
    return story


def test_a_trace_has_a_span_for_each_reason_and_for_the_bind() -> None:
    stories = followed(queue="q")
    for reason, now in ((FULL, 2), (FULL, 3), (LATE, 4), (None, 7)):
        stories.answered(REF.uid, reason, now)
    story = bound(stories, 8)
    root = story.root
    assert (root.name, root.start, root.end, root.failed) == (ROOT, 1, 11, "")
    assert root.attributes["gangshare.filter.count"] == 4
    assert root.attributes["k8s.pod.name"] == "train"
    assert [(span.name, span.start, span.end) for span in root.parts] == [
        ("NoRoom", 2, 4), ("QueueFull", 4, 7), ("Offered", 7, 8), (BIND, 8, 11),
    ]  # fmt: skip
    assert [(span.name, span.start, span.end) for span in root.parts[-1].parts] == [(GANG, 8, 9), (WRITE, 9, 11)]
    assert stories.gone(REF.uid, 12) is None, "a trace is sent once"


def test_a_bind_that_fails_is_shown_and_the_pod_goes_on() -> None:
    stories = followed()
    stories.bind_asked(REF.uid, "n1", 2)
    assert stories.bind_ended(REF.uid, "Left", 5) is None
    root = bound(stories, 6).root
    assert [(span.name, span.failed) for span in root.parts] == [(BIND, "Left"), (BIND, "")]


def test_a_pod_that_is_deleted_ends_its_trace_as_failed() -> None:
    stories = followed()
    stories.answered(REF.uid, FULL, 2)
    stories.bind_asked(REF.uid, "n1", 3)
    story = stories.gone(REF.uid, 5)
    assert story is not None
    assert story.root.failed == "the pod was deleted"
    assert all(span.end for span in story.root.parts)
    assert all(part.end for part in story.root.parts[-1].parts)


def test_what_is_kept_has_bounds() -> None:
    stories = followed()
    for now in range(2, 2 + 3 * MOST_PARTS):
        stories.answered(REF.uid, FULL if now % 2 else LATE, now)
    assert len(bound(stories, 10_000).root.parts) == MOST_PARTS
    for number in range(MOST_PODS + 10):
        stories.begin(PodRef("ml", f"p{number}", f"u{number}"), {}, 1)
    assert sum(stories.followed(f"u{number}") for number in range(MOST_PODS + 10)) == MOST_PODS
    stories.answered("unknown", FULL, 1)
    stories.bind_asked("unknown", "n1", 1)
    assert stories.bind_ended("unknown", "Bound", 1) is None
    assert stories.bind_ended("u1", "Bound", 1) is None, "no bind was asked"


def test_the_sample_is_a_part_of_all_pods_and_the_same_for_every_process() -> None:
    uids = [str(uuid.UUID(int=(number * 2654435761 << 64) | number, version=4)) for number in range(2000)]

    def sampled(part: float) -> set[str]:
        stories = Stories(part)
        for uid in uids:
            stories.begin(PodRef("ml", uid, uid), {}, 1)
        return {uid for uid in uids if stories.followed(uid)}

    assert sampled(0.0) == set()
    assert sampled(1.0) == set(uids)
    assert 350 < len(sampled(0.2)) < 450
    assert sampled(0.2) == sampled(0.2) < sampled(0.4)


def test_without_its_library_the_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "extender.server.traces.export", None)
    with pytest.raises(SettingsError, match=r"gangshare\[traces\]"):
        traces.observer(None, Settings(traces_endpoint="http://c:4318/v1/traces"))  # type: ignore[arg-type]


class Collector:
    """Takes what an exporter posts."""

    def __init__(self) -> None:
        self.url, self.spans, self.status = "", list[Any](), 200

    async def take(self, request: web.Request) -> web.Response:
        posted = ExportTraceServiceRequest.FromString(await request.read())
        if self.status == 200:
            self.spans += [s for r in posted.resource_spans for scope in r.scope_spans for s in scope.spans]
        return web.Response(status=self.status)


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
    try:
        yield collector
    finally:
        await runner.cleanup()


def told(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


async def test_a_pod_that_waited_is_a_trace_under_its_uid(api: Api) -> None:
    async with collecting() as collector, world(api, traces_endpoint=collector.url) as cluster:
        await cluster.ready()
        add_node(api, "n1", mem=16)
        pod = add_pod(api, "p", mem=32)
        fits = add_pod(api, "q", mem=8, annotations={names.QUEUE: "default"})
        await until(lambda: fits["metadata"]["uid"] in cluster.extender.engine.pods, "the extender knows the pods")
        await until(lambda: cluster.extender.engine.nodes.get("n1") or 0, "and the node")
        await cluster.filter(pod, ["n1"])
        await cluster.filter(fits, ["n1"])
        assert await cluster.bind(fits, "n1") == ""
        await cluster.end()
        uid = uuid.UUID(fits["metadata"]["uid"])
        spans = {span.name: span for span in collector.spans}
        assert {span.trace_id for span in collector.spans} == {uid.bytes}, "the other pod still waits"
        assert set(spans) == {ROOT, "Offered", BIND, GANG, WRITE}
        assert told(spans[ROOT])["k8s.pod.name"] == "q"
        assert told(spans[BIND])["k8s.node.name"] == "n1"
        assert spans[BIND].parent_span_id == spans[ROOT].span_id
        assert spans[WRITE].parent_span_id == spans[BIND].span_id
        assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in collector.spans)


async def test_a_collector_that_fails_harms_no_pod(api: Api) -> None:
    async with collecting() as collector, world(api, traces_endpoint=collector.url) as cluster:
        collector.status = 503
        await cluster.ready()
        add_node(api, "n1", mem=16)
        pods = [add_pod(api, f"p{number}", mem=1) for number in range(3)]
        await until(lambda: len(cluster.extender.engine.pods) == 3 and cluster.extender.engine.nodes, "known")
        for pod in pods:
            await cluster.filter(pod, ["n1"])
            assert await cluster.bind(pod, "n1") == ""
        await cluster.end()
        assert collector.spans == []


async def test_what_others_bind_is_no_trace(api: Api) -> None:
    async with collecting() as collector, world(api, traces_endpoint=collector.url) as cluster:
        await cluster.ready()
        add_node(api, "n1", mem=16)
        add_pod(api, "running", mem=1, node="n1")
        await until(lambda: cluster.extender.engine.pods, "known")
        await cluster.end()
        assert collector.spans == []
