"""The measuring process: makes the parts, looks again and again, and serves what it saw."""

import asyncio
import signal
import time
from pathlib import Path

import msgspec
import structlog

from deviceplugin import cgroups
from deviceplugin.exposition import Exposition, Page
from deviceplugin.library.regions import Regions
from deviceplugin.machine import SourceError
from deviceplugin.usage import places, regions
from deviceplugin.usage.accounting import Accounting
from deviceplugin.usage.marks import Marks
from deviceplugin.usage.metrics import Measured, Metrics
from deviceplugin.usage.notices import OVERUSE, Notices, idle_for
from deviceplugin.usage.places import Placed
from deviceplugin.usage.pods import NodePods
from deviceplugin.usage.processes import Processes
from deviceplugin.usage.settings import Settings
from protos.contract import measured, names
from protos.contract.bounds import MEASURED
from protos.contract.inventory import Inventory
from protos.kube import credentials
from protos.kube.client import ApiClient
from protos.kube.events import Recorder

log = structlog.get_logger()

HANG_S = 30.0
"""While the driver takes longer than this to answer, it counts as silent."""
NO_INVENTORY = "the node has no inventory: the device plugin has not written it, or it cannot be read"
NO_CGROUPS = "the node has no cgroup v2: nobody knows which container a process is in"


async def run(settings: Settings, source: Processes, proc: Path = cgroups.PROC, root: Path = cgroups.ROOT) -> None:
    """Measure until SIGTERM or SIGINT; raises CredentialsError and SettingsError."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    access = await credentials.load(settings.kubeconfig or None)
    async with ApiClient(access, user_agent=names.USAGE) as client:
        await Meter(settings, source, client, proc, root).run(stop)


class Meter:
    """Measures, and remembers the last measurement."""

    def __init__(self, settings: Settings, source: Processes, client: ApiClient, proc: Path, root: Path) -> None:
        self.settings, self._source, self._proc, self._root = settings, source, proc, root
        self.pods = NodePods(client, settings.node_name, settings.resources)
        self._accounting = Accounting()
        self._regions = Regions(settings.library_dir) if settings.library_dir is not None else None
        recorder = Recorder(client, component=names.USAGE, instance=settings.node_name, clock=time.monotonic)
        of_idle = [idle_for(settings.idle_events_s)] if settings.idle_events_s else []
        self._notices = Notices(recorder, [*([OVERUSE] if settings.overuse_events else []), *of_idle])
        self._marks = Marks(client, settings.mark_idle_s) if settings.mark_idle_s else None
        self._uses: tuple[measured.Use, ...] = ()
        self._troubles: tuple[str, ...] = ("nothing was measured yet",)
        self._readable: tuple[tuple[str, int, bool], ...] = ()
        self._at, self._events = time.monotonic(), 0
        self.port = settings.port
        """That is served, once it is."""

    async def run(self, stop: asyncio.Event) -> None:
        """Serve and measure until `stop`."""
        metrics = Metrics(self._measured)
        page = Page("application/json", self._page)
        async with (
            Exposition(metrics.registry, self.settings.port, {b"/usage": page}, "--port") as self.port,
            asyncio.TaskGroup() as group,
        ):
            log.info("serving", port=self.port)
            parts = (self.pods.watch_pods(), self.pods.watch_node(), self._measure())
            tasks = [group.create_task(part) for part in parts]
            await stop.wait()
            for task in tasks:
                task.cancel()

    async def _measure(self) -> None:
        await self.pods.listed.wait()
        while True:
            began = time.monotonic()
            await self.look()
            await asyncio.sleep(max(0.0, self.settings.period_s - (time.monotonic() - began)))

    async def look(self) -> None:
        """Measure once."""
        reading = asyncio.ensure_future(asyncio.to_thread(self._read))
        while not (await asyncio.wait([reading], timeout=HANG_S))[0]:
            self._account([], (f"the driver gives no answer in {HANG_S:g} s",))
        try:
            self._account(*await reading)
        except SourceError as error:
            self._account([], (str(error),))
        if self._regions is not None:
            self._uses = await asyncio.to_thread(regions.filled, self._uses, self._regions)
        self._events += await self._notices.tell(self._uses)
        if self._marks is not None:
            await self._marks.write(self.pods.pods, self._uses, time.time())

    def _read(self) -> tuple[list[Placed], tuple[str, ...]]:
        """The processes and their containers; runs in a worker thread."""
        listed, found = time.clock_gettime(time.CLOCK_BOOTTIME), []
        for sample in self._source.read():
            found.append(
                Placed(sample, {each.pid: places.find(each.pid, listed, self._proc) for each in sample.processes})
            )
        return found, () if cgroups.unified(self._root) else (NO_CGROUPS,)

    def _account(self, placed: list[Placed], troubles: tuple[str, ...]) -> None:
        inventory, self._at = self.pods.inventory, time.monotonic()
        troubles += (self.pods.trouble,) if self.pods.trouble else ()
        silent = [f"GPU {each.sample.uuid}: {each.sample.trouble}" for each in placed if each.sample.trouble]
        if inventory is None:
            self._show((), (*troubles, NO_INVENTORY, *silent), ())
            return
        uses = self._accounting.look(self._at, inventory, self.pods.holders(), placed)
        more = [MEASURED.exceeded(len(uses))] if len(uses) > MEASURED.most else []
        self._show(uses[: MEASURED.most], (*troubles, *silent, *more), _readable(inventory, placed))

    def _show(
        self, uses: tuple[measured.Use, ...], troubles: tuple[str, ...], readable: tuple[tuple[str, int, bool], ...]
    ) -> None:
        if troubles != self._troubles:
            log.info("measured", containers=len(uses), troubles=troubles)
        self._uses, self._troubles, self._readable = uses, troubles, readable

    def _measured(self) -> Measured:
        return Measured(
            node=self.settings.node_name,
            uses=self._uses,
            times=self._accounting.times,
            readable=self._readable,
            age=time.monotonic() - self._at,
            events=self._events,
        )

    def _page(self) -> bytes:
        age = round(time.monotonic() - self._at, 3)
        page = measured.Page(node=self.settings.node_name, age=age, troubles=self._troubles, uses=self._uses)
        return msgspec.json.encode(page)


def _readable(inventory: Inventory, placed: list[Placed]) -> tuple[tuple[str, int, bool], ...]:
    read = {each.sample.uuid for each in placed if not each.sample.trouble}
    return tuple((gpu.uuid, gpu.index, gpu.uuid in read) for gpu in inventory.gpus)
