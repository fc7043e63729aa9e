"""The status port: probes, metrics, and the books for people."""

import asyncio
import ssl
from collections.abc import Callable
from functools import partial

from extender.server import explain, exposition, inspect, listings, places
from extender.server.core import Core
from extender.server.desk import Desk, Pieces, Traffic
from extender.server.pages import JSON, Form, Guard, Page, Pages, Request, loopback_only
from extender.server.whatif import page as whatif
from gangfilter.group import GroupKey
from protos.contract.bounds import WHAT_IF_BODY
from protos.kube.http1 import Answer, Http

SCORES = "scores=true"
"""The query of `/explain/NAMESPACE/NAME` for scores on nodes."""
STALLED_S = 5.0
"""Seconds without a tick after which the process does not count as alive."""
SCHEDULER_S = 2.0
"""Seconds that the scheduler has to answer its health check."""


class Health:
    """The answers of the probes."""

    def __init__(self, clock: Callable[[], float], scheduler_healthz: str) -> None:
        """`scheduler_healthz` is the URL of the scheduler's own health check, "" for none."""
        self._clock, self._scheduler = clock, scheduler_healthz
        self.not_ready = "the cluster's pods and nodes are still being listed"
        """Why this process is not ready, "" if it is."""
        self.ticked_at = clock()
        self._asking: asyncio.Task[str] | None = None

    async def readyz(self) -> str:
        """Why this process is not ready, "" if it is."""
        return self.not_ready

    async def healthz(self) -> str:
        """Why this process is unhealthy, "" if it is healthy."""
        stalled = self._clock() - self.ticked_at
        return f"nothing moved for {stalled:.1f} s" if stalled > STALLED_S else ""

    async def livez(self) -> str:
        """Why this process and its scheduler should be restarted, "" if they live.

        All callers share one question to the scheduler at a time.
        """
        unhealthy = await self.healthz()
        if unhealthy or not self._scheduler:
            return unhealthy
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._scheduler_ill())
        return await asyncio.shield(self._asking)

    async def _scheduler_ill(self) -> str:
        """As for the kubelet's own probes, its certificate is not verified."""
        try:
            async with asyncio.timeout(SCHEDULER_S):
                answer = await _asked(self._scheduler)
        except (TimeoutError, OSError, ValueError) as error:
            return f"{self._scheduler}: {str(error) or type(error).__name__}"
        text = answer.body.decode(errors="replace")[:200]
        return "" if answer.status == 200 else f"{self._scheduler} answers {answer.status}: {text}"


async def _asked(url: str) -> Answer:
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the machine's CAs, which take long to load
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    scheme, _, rest = url.partition("://")
    server, _, target = rest.partition("/")
    http = Http(f"{scheme}://{server}", tls=lambda: unverified)
    try:
        return await http.ask("GET", f"/{target}", {})
    finally:
        http.close()


PEOPLE, SCRAPES, PLANS, WHAT_IFS = 8, 4, 1, 4
"""Different questions under way at most: of people, of Prometheus, for defragmentation plans, of what-if."""
PLANNING = "another plan of moves is being made: try again"
ASKING = "other what-if questions are being answered: try again"


class Status:
    """The pages and probes, and the desks that make them, for all ports for people."""

    def __init__(self, core: Core, health: Health, traffic: Traffic, *, open_allocations: bool) -> None:
        """`open_allocations`: the metrics show everybody which pod has which GPUs."""
        self._core, self._open = core, open_allocations
        self._probes = {"/readyz": health.readyz, "/healthz": health.healthz, "/livez": health.livez}
        self._people = Desk(traffic, PEOPLE)
        self._scrapes = Desk(traffic, SCRAPES)
        self._plans = Desk(traffic, PLANS, PLANNING)
        self._what_ifs = Desk(traffic, WHAT_IFS, ASKING)

    def plain(self) -> Pages:
        """Without TLS: probes and metrics for everybody, pages that show pods of tenants on loopback."""
        return Pages(self._page_in_plain, self._probes)

    def secure(self, guard: Guard) -> Pages:
        """Over TLS: probes for everybody, all pages for callers that pass the guard."""
        return Pages(lambda request: self.page(request, guard), self._probes)

    def _page_in_plain(self, request: Request) -> Page | Form | None:
        if request.path == "/metrics":
            return self._metrics(tenants=self._open or request.on_loopback, guard=None)
        return self.page(request, loopback_only)

    def _metrics(self, *, tenants: bool, guard: Guard | None) -> Page:
        engine, registry = self._core.engine, self._core.metrics.registry
        work = partial(exposition.pieces, engine, registry, tenants=tenants)
        return Page(self._scrapes, exposition.MEDIA_TYPE, f"/metrics {tenants}", work, guard)

    def page(self, request: Request, guard: Guard) -> Page | Form | None:
        """The requested page, None if there is none."""
        if request.path == "/metrics":
            return self._metrics(tenants=True, guard=guard)
        if request.path == "/whatif":
            return Form(self._what_ifs, request.path, WHAT_IF_BODY, self._what_if, guard)
        work = self._work(request)
        if work is None:
            return None
        desk = self._plans if request.path.startswith("/defrag/") else self._people
        return Page(desk, JSON, f"{request.path}?{request.query}", work, guard)

    def _what_if(self, body: bytes) -> Pieces:
        return whatif.pieces(self._core.engine, body, self._core.clock)

    def _work(self, request: Request) -> Callable[[], Pieces] | None:
        engine, now = self._core.engine, self._core.clock
        match request.path.split("/")[1:]:
            case ["inspect"]:
                return lambda: inspect.cluster(engine, now())
            case ["inspect", name]:
                return lambda: places.node(engine, name)
            case ["gpus", uuid]:
                return lambda: places.gpu(engine, uuid)
            case ["classes"]:
                return lambda: listings.classes(engine)
            case ["queues"]:
                return lambda: listings.queues(engine)
            case ["queues", name]:
                return lambda: places.queue(engine, name, now())
            case ["explain", "groups", namespace, name]:
                return lambda: explain.group(engine, GroupKey(namespace, name), now())
            case ["explain", namespace, name]:
                return lambda: explain.pod(engine, namespace, name, now(), scores=request.query == SCORES)
            case ["defrag", namespace, name]:
                return lambda: explain.moves(engine, namespace, name, request.query)
        return None
