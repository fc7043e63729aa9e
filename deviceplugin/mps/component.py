"""The MPS component as a process: one unit for each GPU that is given over to MPS, and the file that tells of them."""

import asyncio
import os
import signal
import sys
from functools import partial
from typing import Any, Literal

import msgspec
import structlog

from deviceplugin import cgroups
from deviceplugin.mps import checks, exchange, probe, processes
from deviceplugin.mps.checks import Checks
from deviceplugin.mps.control import Commands, Control, ControlError
from deviceplugin.mps.daemon import Daemon
from deviceplugin.mps.ending import PodOf
from deviceplugin.mps.exchange import Holder, Holders, State
from deviceplugin.mps.gpus import Gpu, GpuError, Gpus
from deviceplugin.mps.settings import Settings
from deviceplugin.mps.unit import LOOK_S, Unit
from deviceplugin.mps.v2 import V2
from deviceplugin.mps.v3 import V3
from protos import files
from protos.contract import codec
from protos.files import FileError

log = structlog.get_logger()

READ_S = 5.0
"""Seconds between two readings of the GPUs."""
CLIENT = (sys.executable, "-m", "deviceplugin.mps.probe")
MODE_S = 10.0
"""Longest time that NVML may take to set a compute mode."""
BEAT_S = 2.0
"""The file of the state is written at least this often: the plugin takes an older one for that of a dead component."""


class Component:
    """All units. `pod_of` tells the pod of a process, `client` is the command of a client of our own."""

    def __init__(
        self, settings: Settings, gpus: Gpus, client: tuple[str, ...], pod_of: PodOf, protocol: Literal[2, 3]
    ) -> None:
        self.settings, self._gpus, self._client, self._pod_of, self._protocol = settings, gpus, client, pod_of, protocol
        self.units: dict[str, Unit] = {}
        self._shown: dict[str, Gpu] = {}
        self._holders: Holders | None = None
        self._stamp: files.Stamp | None = None
        self._written: State | None = None
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then end all daemons and give the GPUs back."""
        await self._sweep()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._read_for_ever(group)), group.create_task(self._publish_for_ever())]
                await stop.wait()
                for task in [*tasks, *self._running.values()]:
                    task.cancel()
        finally:
            await asyncio.gather(*(unit.close() for unit in self.units.values()))
            (self.settings.mps_dir / exchange.STATE).unlink(missing_ok=True)

    async def read(self) -> None:
        """Read the GPUs, and make units for new ones."""
        try:
            shown = await asyncio.to_thread(self._gpus.read)
        except GpuError as error:
            log.warning("gpus_not_read", error=str(error))
            return
        for gpu in shown.values():
            if gpu.uuid not in self.units and self.settings.takes(gpu.index, gpu.uuid):
                self.units[gpu.uuid] = self._unit(gpu)
        self._shown = shown

    def publish(self) -> None:
        """Write the state if it changed, or if the plugin would take it for old."""
        now, before = exchange.now(), self._written
        gpus = {uuid: unit.served for uuid, unit in self.units.items()}
        if before is None or before.gpus != gpus or now - before.beat >= BEAT_S:
            state = State(v=codec.VERSION, beat=now, protocol=self._protocol, gpus=gpus)
            try:
                exchange.write(self.settings.mps_dir, state)
            except OSError as error:
                log.warning("state_not_written", error=os.strerror(error.errno or 0))
            else:
                self._written = state

    async def _read_for_ever(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self.read()
            for uuid in self.units.keys() - self._running.keys():
                self._running[uuid] = group.create_task(self.units[uuid].run())
            await asyncio.sleep(READ_S)

    async def _publish_for_ever(self) -> None:
        while True:
            self.publish()
            await asyncio.sleep(LOOK_S / 2)

    def _look(self, uuid: str) -> tuple[Gpu | None, tuple[Holder, ...] | None]:
        """A GPU and its holders as last seen."""
        self._read_holders()
        if self._holders is None:
            return self._shown.get(uuid), None
        return self._shown.get(uuid), tuple(holder for holder in self._holders.holders if holder.gpu == uuid)

    def _read_holders(self) -> None:
        """Read the plugin's file if it has changed; one that cannot be read leaves the last one in force."""
        stamp = files.stamp(self.settings.mps_dir / exchange.HOLDERS)
        if stamp is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._holders = exchange.read_holders(self.settings.mps_dir) or self._holders
        except FileError as error:
            log.warning("holders_not_read", error=str(error))

    def _unit(self, gpu: Gpu) -> Unit:
        folder = exchange.folder_of(self.settings.mps_dir, gpu.uuid)
        control = Control(self.settings.control, folder / exchange.PIPE, folder / "log", gpu.uuid)
        commands: Commands = V3(control) if self._protocol == 3 else V2(control, gpu.total_mib)
        ask = partial(self._ask_a_client, control.environment, commands) if self.settings.probe_s else None
        return Unit(
            gpu.uuid,
            Daemon(control, commands, folder, self.settings.multi_user),
            Checks(commands, ask, self.settings.probe_s),
            partial(self._look, gpu.uuid),
            partial(self._make_exclusive, gpu.uuid),
            self._pod_of,
            self.settings.end_clients_s,
        )

    async def _ask_a_client(self, environment: dict[str, str], commands: Commands) -> str:
        own = {**environment, "CUDA_MPS_PIPE_DIRECTORY": str(commands.clients_folder())}
        return await checks.ask_a_client(self._client, own, probe.UNKNOWN)

    async def _make_exclusive(self, uuid: str, exclusive: bool) -> None:
        """Set the compute mode of a GPU, and note it until the next reading. Raises GpuError."""
        try:
            async with asyncio.timeout(MODE_S):
                await asyncio.to_thread(self._gpus.make_exclusive, uuid, exclusive)
        except TimeoutError as error:
            raise GpuError(f"NVML does not set the compute mode of {uuid} in {MODE_S:g} s") from error
        if uuid in self._shown:
            self._shown[uuid] = msgspec.structs.replace(self._shown[uuid], exclusive=exclusive)

    async def _sweep(self) -> None:
        """End what a component left that was killed, and give back the GPUs that are given over no more."""
        try:
            left = exchange.read_state(self.settings.mps_dir)
        except FileError as error:
            log.warning("state_not_read", error=str(error))
            return
        if left is None:
            return
        found = [process for served in left.gpus.values() for process in served.processes]
        await processes.end(found)
        await self.read()
        for uuid in left.gpus.keys() - self.units.keys():
            try:
                await self._make_exclusive(uuid, False)
            except GpuError as error:
                log.warning("compute_mode_not_set", gpu=uuid, exclusive=False, error=str(error))


async def protocol(settings: Settings) -> Literal[2, 3]:
    """The version of the control daemon's protocol: 3 if its program knows namespaces."""
    if settings.protocol != "auto":
        return 3 if settings.protocol == "3" else 2
    try:
        said = await Control(settings.control, settings.mps_dir, settings.mps_dir, "").ask("-p", "3", "-h")
    except ControlError as error:
        log.info("protocol_2", why=str(error))
        return 2
    return 3 if "namespace" in said else 2


async def run(settings: Settings, nvml: Any) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    gpus = Gpus(nvml)
    try:
        await Component(settings, gpus, CLIENT, _pod_of, await protocol(settings)).run(stop)
    finally:
        gpus.close()


def _pod_of(pid: int) -> str:
    group = cgroups.of_process(pid)
    return group.pod if group else ""
