"""Sends the traces of pods to a collector, by OTLP over HTTP.

A trace has the pod's UID as its ID, so it is found without a search. The library's own variables hold: headers, TLS and
timeouts are `OTEL_EXPORTER_OTLP_*`. Source: OpenTelemetry specification, OTLP exporter configuration.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from importlib import metadata

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Status, StatusCode

from extender.engine.cycle.engine import Engine
from extender.engine.types.effects import PodRef
from extender.server.observer import Observer
from extender.server.traces.stories import Span, Stories, Story
from protos.contract import names
from protos.contract.reason import Reason

QUEUED = 16_384
"""Spans that wait for the collector; more are dropped."""


class _Ids(RandomIdGenerator):
    """The ID of the next trace is set before it begins."""

    def __init__(self) -> None:
        self.next = 1

    def generate_trace_id(self) -> int:
        return self.next


def trace_id(uid: str) -> int:
    """That of a pod's trace: its UID, read as a number."""
    try:
        return uuid.UUID(uid).int or 1
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_URL, uid).int


class Traces(Observer):
    """Follows pending pods of the engine, and exports each when it is bound or gone."""

    def __init__(self, engine: Engine, exporter: SpanExporter, sample: float) -> None:
        self._engine, self._stories, self._ids = engine, Stories(sample), _Ids()
        about = Resource.create({SERVICE_NAME: names.EXTENDER, SERVICE_VERSION: metadata.version("gangshare")})
        self._provider = TracerProvider(resource=about, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=QUEUED))
        self._tracer = self._provider.get_tracer(names.EXTENDER)
        self.now: Callable[[], int] = time.time_ns
        """The wall clock in ns."""

    def seen(self, uid: str) -> None:
        pod = self._engine.pods.get(uid)
        if pod is None:
            self._end(self._stories.gone(uid, self.now()))
        elif pod.state == "bound":
            self._stories.forget(uid)
        elif not self._stories.followed(uid) and pod.state == "waiting":
            gang = self._engine.gangs.roster.of(uid)
            if pod.ask is not None or gang is not None:
                about = {"gangshare.queue": pod.queue or "", "gangshare.gang": str(gang.gang.key) if gang else ""}
                self._stories.begin(pod.ref, {key: text for key, text in about.items() if text}, self.now())

    def answered(self, uid: str, reason: Reason | None) -> None:
        self._stories.answered(uid, reason, self.now())

    def bind_asked(self, ref: PodRef, node: str) -> None:
        self._stories.bind_asked(ref.uid, node, self.now())

    def released(self, ref: PodRef) -> None:
        self._stories.released(ref.uid, self.now())

    def bind_ended(self, ref: PodRef, code: str) -> None:
        self._end(self._stories.bind_ended(ref.uid, code, self.now()))

    def gone(self, uid: str) -> None:
        self._end(self._stories.gone(uid, self.now()))

    def close(self) -> None:
        """Send what waits; takes some seconds at most if the collector does not answer."""
        self._provider.shutdown()

    def _end(self, story: Story | None) -> None:
        if story is not None:
            self._ids.next = trace_id(story.ref.uid)
            self._send(story.root, None)

    def _send(self, span: Span, parent: trace.Span | None) -> None:
        context = trace.set_span_in_context(parent) if parent is not None else None
        made = self._tracer.start_span(span.name, context, start_time=span.start, attributes=span.attributes)
        for part in span.parts:
            self._send(part, made)
        if span.failed:
            made.set_status(Status(StatusCode.ERROR, span.failed))
        made.end(span.end)


def traces(engine: Engine, endpoint: str, sample: float) -> Traces:
    """Traces that go to a collector's URL, like http://collector:4318/v1/traces."""
    return Traces(engine, OTLPSpanExporter(endpoint=endpoint), sample)
