"""The extender as a process: all its parts in one event loop.

Every task belongs to a TaskGroup. A task that fails ends the process, and a new process rebuilds the books from the
cluster.
"""

import asyncio
import signal
import socket
import time
import uuid
from collections.abc import Coroutine
from typing import Any

import msgspec
import structlog

from extender.cluster.act import Actor
from extender.cluster.bind import Binder
from extender.cluster.leadership import Candidate, LeaseWatch, OwnLease, Permission, Rivals
from extender.cluster.pending import Complaint
from extender.cluster.provisioning import Requests
from extender.cluster.reviews import Reviews
from extender.cluster.watch import Watches
from extender.engine.cycle.engine import Engine
from extender.engine.types.events import EvictionRefused, Leading, WallMoved
from extender.metrics import Metrics
from extender.server import gpushare, http, status
from extender.server.binds import Binds
from extender.server.clocks import Clocks
from extender.server.core import Core
from extender.server.desk import Traffic
from extender.server.garbage import Garbage
from extender.server.gate import Gate
from extender.server.pages import Pages
from extender.server.ports import Ports
from extender.server.provisioning import ProvisioningDesk
from extender.server.traces import observer
from extender.server.verbs import VerbQuestions, Verbs
from extender.server.visibility.api import Api, Standing
from extender.settings import Settings
from protos.contract import names
from protos.kube import credentials
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from protos.kube.events import Recorder

TICK_S = 0.2
APART_S = 0.01
"""Seconds from the end of planning until it begins again, at least."""
SHORT_S = 0.0005
"""Seconds of a tick's parts after which the event loop gets a turn."""
CHECK_S = 60.0
"""Seconds between checks of the books."""
CHECKED_NODES = 50
"""Nodes checked between two turns of the event loop."""
DRAIN_S = 10.0
"""Seconds for binds under way when the process ends."""

log = structlog.get_logger(__name__)


def decisions(settings: Settings) -> Settings:
    """The settings with a gang size that this machine can serve: each member of a starting gang holds a connection."""
    return msgspec.structs.replace(settings, max_gang_size=min(settings.max_gang_size, http.connections()))


def permission(settings: Settings, client: ApiClient) -> Permission:
    """What decides whether this process may write."""
    where = settings.lease_namespace, settings.lease_name
    match settings.leader_election:
        case "scheduler":
            return LeaseWatch(client, where, settings.identity_prefix, settings.renew_deadline_s)
        case "own":
            return OwnLease(client, where, f"{settings.identity_prefix}{uuid.uuid4()}")
        case "none":
            return Permission()


class Extender:
    """One extender. It listens from the start, and `run` serves until it is stopped."""

    def __init__(self, settings: Settings, access: Credentials) -> None:
        """Raises SettingsError."""
        self.settings = settings
        self.ports = ports = Ports(settings)
        secure = f"https://{ports.secure.address}" if ports.secure else ""
        log.info(
            "listening", verbs=f"http://{ports.verbs.address}", status=f"http://{ports.status.address}", secure=secure
        )
        self._reader = ApiClient(access, user_agent=names.EXTENDER)
        self._permission = permission(settings, self._reader)
        self._rivals = Rivals(self._reader, settings.conflicting_leases)
        self._writer = ApiClient(access, user_agent=names.EXTENDER, permit=self._permission.require)
        self.started = time.monotonic()
        self._clocks = Clocks()
        self.engine = Engine(decisions(settings), self.started, self._clocks.ahead)
        self.metrics = Metrics(self.engine.counters)
        recorder = Recorder(self._writer, component=names.EXTENDER, instance=socket.gethostname(), clock=time.monotonic)
        errors, faults = self.metrics.errors, self.metrics.faults
        self._actor = Actor(self._writer, self._permission, recorder, lambda kind: errors.update([kind]), faults)
        self._garbage = Garbage(self.metrics.steps)
        self.core = Core(self.engine, self.metrics, self._actor.submit)
        self.core.observer = observer(self.engine, settings)
        self._actor.refused = lambda uid, why: self.core.tell(EvictionRefused(uid, why))
        self.watches = Watches(
            self._reader,
            self.core.tell,
            self.metrics,
            lambda about, reason: self._actor.submit([Complaint(about, reason)]),
            gpushare=settings.gpushare,
            resources=settings.resources,
            calm=self.core.calm,
        )
        self.gate = Gate(lambda is_open: self.core.tell(Leading(is_open)))
        self.health = status.Health(time.monotonic, settings.scheduler_healthz)
        self._traffic = Traffic(self.metrics.steps)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set and binds under way are done; raises the error of a failed task."""
        with self.metrics.steps.collections():
            await self._serve(stop)

    async def _serve(self, stop: asyncio.Event) -> None:
        ports = self.ports
        async with self._reader, self._writer, asyncio.TaskGroup() as tasks:
            binder = Binder(self._writer, self._permission)
            if isinstance(self._permission, Candidate):
                self._permission.busy = lambda: binder.under_way > 0
            binds = Binds(self.core, binder, tasks)
            app = status.Status(self.core, self.health, self._traffic, open_allocations=self.settings.open_allocations)
            servers = list(ports.servers(*self._verbs(binds), app, self._reader))
            serving = [tasks.create_task(server.serve(sockets=[listener])) for server, listener in servers]
            endless: list[Coroutine[Any, Any, None]] = [
                self._tick(),
                self._run_slices(),
                self._check(),
                self._actor.run(),
                self._lead(),
                *(certificate.run() for certificate in ports.certificates),
            ]
            if ports.webhook is not None:
                from extender.server.webhook import Webhook  # its libraries are loaded only if they are needed

                endless.append(Webhook(self._writer, ports.webhook, self.settings.scheduler_names).run())
            if self.settings.provisioning_class:
                endless.append(self._provisioning().run())
            if ports.visibility is not None:
                from extender.server.visibility.server import Visibility  # the same

                api = Api(self.core, self._traffic, Reviews(self._reader, time.monotonic), self._standing)
                endless.append(Visibility(api, ports.visibility, self._reader, self._writer).run())
            lasting = [tasks.create_task(work) for work in endless]
            await stop.wait()
            log.info("stopping")
            self.health.not_ready = "the extender is stopping"
            self.gate.close("the extender is stopping", final=True)
            if not await binds.drained(DRAIN_S):
                log.warning("binds_left", expected=f"all decided within {DRAIN_S:g} s")
            for server, _ in servers:
                server.should_exit = True
            await asyncio.wait(serving)
            for task in lasting:
                task.cancel()
            binds.abandon()
            await asyncio.to_thread(self.core.observer.close)
        log.info("stopped")

    def _verbs(self, binds: Binds) -> tuple[VerbQuestions, Pages]:
        """The verbs, and the other pages of their port."""
        verbs, others = Verbs(self.core, binds, self.gate), Pages(lambda _: None)
        handlers = dict(verbs.handlers)
        if self.settings.gpushare:
            handlers |= gpushare.GpuShare(verbs, self.engine).handlers
            others = gpushare.pages(self.engine, self.gate, self._traffic)
        return VerbQuestions(self.core, self.gate, handlers, self._traffic), others

    def _provisioning(self) -> ProvisioningDesk:
        undecodable = lambda: self.metrics.errors.update(["undecodable"])  # noqa: E731
        requests = Requests(self._reader, self._writer, self.settings.provisioning_class, undecodable)
        return ProvisioningDesk(self.core, requests, lambda: not self.gate.why, self._actor.submit)

    def _standing(self) -> Standing:
        if not self.watches.replayed.is_set():
            return "unready"
        return "standby" if self.gate.why else "leader"

    async def _lead(self) -> None:
        """Watch the cluster and, with leader election, the Lease. Open and close the gate accordingly."""
        lease = self._permission
        async with asyncio.TaskGroup() as tasks:
            if not isinstance(lease, Candidate):
                tasks.create_task(self.watches.run())
                await self._replayed()
                self.gate.open()
                return
            self.gate.knock = lease.look_soon
            tasks.create_task(lease.run())
            tasks.create_task(self._rivals.run())
            await lease.looked()
            await lease.handed_over()
            listed_in = lease.term
            tasks.create_task(self.watches.run())
            await self._replayed()
            await self._tend(lease, listed_in)

    async def _replayed(self) -> None:
        await self.watches.replayed.wait()
        took = time.monotonic() - self.started
        self.metrics.replay_seconds.set(took)
        self._garbage.settle()
        self.health.not_ready = ""
        log.info("ready", nodes=len(self.engine.nodes), pods=len(self.engine.pods), seconds=round(took, 2))

    async def _tend(self, lease: Candidate, listed_in: object) -> None:
        """Keep the gate open while our scheduler holds the Lease and our books are of its term.

        Each new term begins with a consistent list: the former holder of the Lease may have placed pods that our
        watches have not shown yet.
        """
        while True:
            why_not = self._rivals.why() or lease.not_handed_over() if lease.ours else lease.why_not()
            if why_not:
                self.gate.close(why_not)
            elif lease.term != listed_in:
                self.gate.close("this extender is taking over and reads the cluster once more")
                log.info("taking_over", term=lease.terms)
                listed_in = lease.term
                await self.watches.catch_up()
                continue
            else:
                self.gate.open()
            if isinstance(lease, OwnLease):  # a Service finds the leader by its readiness
                self.health.not_ready = self.gate.why
            await lease.looked()

    async def _tick(self) -> None:
        """Step the engine's ticks, and measure how late the event loop is."""
        due = time.monotonic()
        while True:
            if by := self._clocks.moved():
                log.warning("wall_clock_moved", by_s=round(by, 1))
                self.core.tell(WallMoved(by))
            since = time.monotonic()
            for part in self.engine.ticks:
                self.core.tell(part)
                if time.monotonic() - since > SHORT_S:
                    await asyncio.sleep(0)
                    since = time.monotonic()
            now = self.health.ticked_at = time.monotonic()
            self.metrics.loop_lag.observe(max(0.0, now - due))
            leads = self._permission.leads
            self.metrics.leader.set(leads)
            self._garbage.tick(leads=leads)
            due = now + TICK_S
            await asyncio.sleep(TICK_S)

    async def _run_slices(self) -> None:
        """Plan in slices after each change. The changes of a burst share them."""
        looked = 0.0
        while True:
            await self.core.stirred.wait()
            if (early := looked + APART_S - time.monotonic()) > 0:
                await asyncio.sleep(early)
            self.core.stirred.clear()
            more = True
            while more:
                more = self.core.run_slice()
                await asyncio.sleep(0)
            looked = time.monotonic()

    async def _check(self) -> None:
        """Check the books from time to time, a few nodes at once, so that no decision waits for it."""
        while True:
            await asyncio.sleep(CHECK_S)
            violations: list[str] = []
            names_left = list(self.engine.nodes)
            while names_left:
                await self.core.calm.wait()
                with self.metrics.faults.over("check"):
                    violations += self.engine.check(names_left[:CHECKED_NODES])
                del names_left[:CHECKED_NODES]
                await asyncio.sleep(0)
            self.metrics.violations.set(len(violations))
            for violation in violations[:10]:
                log.error("invariant_violated", what=violation)


async def serve(settings: Settings) -> None:
    """Run the extender until SIGTERM or SIGINT; raises SettingsError, CredentialsError, or the error that ended it."""
    log.info("starting", **{key: str(value) for key, value in msgspec.structs.asdict(settings).items()})
    extender = Extender(settings, await credentials.load(settings.kubeconfig or None))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await extender.run(stop)
