"""The status port: probes, metrics, and the books for people."""

import asyncio
import ssl
from collections.abc import Callable

import msgspec
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse

from extender.server import classes, defrag, exposition, inspect, queues
from extender.server.core import Core
from gangfilter.group import GroupKey
from protos.kube.http1 import Answer, Http

STALLED_S = 5.0
"""Seconds without a tick after which the process does not count as alive."""
SCHEDULER_S = 2.0
"""Seconds that the scheduler has to answer its health check."""


class Health:
    """What the probes are told."""

    def __init__(self, clock: Callable[[], float], scheduler_healthz: str) -> None:
        """`scheduler_healthz` is the URL of the scheduler's own check, "" for none."""
        self._clock, self._scheduler = clock, scheduler_healthz
        self.not_ready = "the cluster's pods and nodes are still being listed"
        """Why not, "" once they were."""
        self.ticked_at = clock()

    def ill(self) -> str:
        """Why this process is not well, "" if it is."""
        stalled = self._clock() - self.ticked_at
        return f"nothing moved for {stalled:.1f} s" if stalled > STALLED_S else ""

    async def dead(self) -> str:
        """Why this process and its scheduler should be started anew, "" if they live.

        The scheduler's certificate is not verified, as kubelet's own probes do not.
        """
        ill = self.ill()
        if ill or not self._scheduler:
            return ill
        try:
            async with asyncio.timeout(SCHEDULER_S):
                answer = await _asked(self._scheduler)
        except (TimeoutError, OSError, ValueError) as error:
            return f"{self._scheduler}: {str(error) or type(error).__name__}"
        told = answer.body.decode(errors="replace")[:200]
        return "" if answer.status == 200 else f"{self._scheduler} answers {answer.status}: {told}"


async def _asked(url: str) -> Answer:
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the machine's CAs, which take long to read
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    server, _, target = url.partition("://")[2].partition("/")
    http = Http(f"{url.partition('://')[0]}://{server}", tls=unverified)
    try:
        return await http.ask("GET", f"/{target}", {})
    finally:
        http.close()


def _said(why_not: str) -> Response:
    return Response(why_not or "ok", 503 if why_not else 200, media_type="text/plain")


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def app(core: Core, health: Health) -> FastAPI:
    """The application of the status port."""
    made = FastAPI(title="gangshare extender", docs_url=None, redoc_url=None, openapi_url=None)
    engine = core.engine

    @made.get("/readyz")
    async def readyz() -> Response:
        """Whether the books are complete; the Lease does not matter."""
        return _said(health.not_ready)

    @made.get("/healthz")
    async def healthz() -> Response:
        """Whether this process is well."""
        return _said(health.ill())

    @made.get("/livez")
    async def livez() -> Response:
        """Whether this process and its scheduler are alive; for the scheduler's livenessProbe."""
        return _said(await health.dead())

    @made.get("/metrics")
    async def metrics() -> Response:
        """For Prometheus."""
        return StreamingResponse(exposition.pieces(engine, core.metrics.registry), media_type=exposition.MEDIA_TYPE)

    @made.get("/inspect")
    async def inspect_cluster() -> Response:
        """All nodes, GPUs and pods."""
        return StreamingResponse(inspect.cluster(engine, core.clock()), media_type="application/json")

    @made.get("/inspect/{name}")
    async def inspect_node(name: str) -> Response:
        """One node."""
        node = engine.nodes.get(name)
        if node is None:
            return Response(f"{name}: no such node", 404, media_type="text/plain")
        return _json(inspect.node(engine, node))

    @made.get("/classes")
    async def list_classes() -> Response:
        """GpuClasses and models of GPUs."""
        return _json(classes.listing(engine))

    @made.get("/queues")
    async def list_queues() -> Response:
        """The tree of queues."""
        return _json(queues.listing(engine))

    @made.get("/explain/{namespace}/{name}")
    async def explain(namespace: str, name: str) -> Response:
        """One pod: where it is, or why it waits; and its score there and elsewhere."""
        found = await inspect.explanation(engine, namespace, name, core.clock())
        if found is None:
            return Response(f"{namespace}/{name}: no such pod, or it is over", 404, media_type="text/plain")
        return _json(found)

    @made.get("/explain/groups/{namespace}/{name}")
    async def explain_group(namespace: str, name: str) -> Response:
        """One gang: its phase, its members and why it waits."""
        found = await inspect.group_explanation(engine, GroupKey(namespace, name), core.clock())
        if found is None:
            return Response(f"{namespace}/{name}: no such gang", 404, media_type="text/plain")
        return _json(found)

    defrag.add_page(made, core)
    return made
