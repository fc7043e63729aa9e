"""The status port: probes, metrics, and the books for people."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from functools import partial

from extender.server import classes, defrag, explain, exposition, inspect, queues
from extender.server.core import Core
from extender.server.desk import Desk, Pieces, Traffic
from extender.server.pages import JSON, Guard, Page, Pages, Probe, Request, loopback_only
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
        self._asking: asyncio.Task[str] | None = None

    def ill(self) -> str:
        """Why this process is not well, "" if it is."""
        stalled = self._clock() - self.ticked_at
        return f"nothing moved for {stalled:.1f} s" if stalled > STALLED_S else ""

    async def dead(self) -> str:
        """Why this process and its scheduler should be started anew, "" if they live.

        However many ask, the scheduler is asked once at a time.
        """
        ill = self.ill()
        if ill or not self._scheduler:
            return ill
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._scheduler_ill())
        return await asyncio.shield(self._asking)

    async def _scheduler_ill(self) -> str:
        """Its certificate is not verified, as kubelet's own probes do not."""
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
    http = Http(f"{url.partition('://')[0]}://{server}", tls=lambda: unverified)
    try:
        return await http.ask("GET", f"/{target}", {})
    finally:
        http.close()


PEOPLE, SCRAPES, PLANS = 8, 4, 1
"""Different questions that are worked on or wait at most: of people, of Prometheus, for moves."""
BUSY = "too many questions at once: try again"


class Status:
    """What there is to be told, and the desks at which it is worked out, for each port at which people ask."""

    def __init__(self, core: Core, health: Health, traffic: Traffic, *, open_allocations: bool) -> None:
        """`open_allocations`: metrics tell everybody whose pods are on which GPUs."""
        self._core, self._health, self._open = core, health, open_allocations
        self._people = Desk(traffic, PEOPLE, BUSY)
        self._scrapes = Desk(traffic, SCRAPES, BUSY)
        self._plans = Desk(traffic, PLANS, defrag.BUSY)

    def plain(self) -> Pages:
        """Without TLS: probes and metrics for everybody, what shows tenants' pods on loopback."""
        return Pages(self.page, loopback_only, everybody=self._metrics_of, probes=self._probes)

    def secure(self, guard: Guard) -> Pages:
        """Over TLS: probes for everybody, all else for those whom the guard lets pass."""
        return Pages(self.page, guard, probes=self._probes)

    @property
    def _probes(self) -> Mapping[str, Probe]:
        health = self._health

        async def readyz() -> str:
            """Whether the books are complete; the Lease does not matter."""
            return health.not_ready

        async def healthz() -> str:
            return health.ill()

        return {"/readyz": readyz, "/healthz": healthz, "/livez": health.dead}

    def _metrics_of(self, request: Request) -> Page | None:
        tenants = self._open or request.on_loopback
        return self._metrics(tenants=tenants) if request.path == "/metrics" else None

    def _metrics(self, *, tenants: bool) -> Page:
        engine, registry = self._core.engine, self._core.metrics.registry
        work = partial(exposition.pieces, engine, registry, tenants=tenants)
        return Page(self._scrapes, exposition.MEDIA_TYPE, f"/metrics {tenants}", work)

    def page(self, request: Request) -> Page | None:
        """The page that is asked for, None if there is none."""
        if request.path == "/metrics":
            return self._metrics(tenants=True)
        work = self._work(request)
        if work is None:
            return None
        desk = self._plans if request.path.startswith("/defrag/") else self._people
        return Page(desk, JSON, f"{request.path}?{request.query}", work)

    def _work(self, request: Request) -> Callable[[], Pieces] | None:
        engine, now = self._core.engine, self._core.clock
        match request.path.split("/")[1:]:
            case ["inspect"]:
                return lambda: inspect.cluster(engine, now())
            case ["inspect", name]:
                return lambda: explain.node(engine, name)
            case ["classes"]:
                return lambda: classes.listing(engine)
            case ["queues"]:
                return lambda: queues.listing(engine)
            case ["explain", "groups", namespace, name]:
                return lambda: explain.group(engine, GroupKey(namespace, name), now())
            case ["explain", namespace, name]:
                return lambda: explain.pod(engine, namespace, name, now())
            case ["defrag", namespace, name]:
                return lambda: defrag.page(engine, namespace, name, request.query)
        return None
