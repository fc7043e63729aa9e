"""The control daemon of one GPU: a child of ours in the foreground, with its folders.

The daemon reads its standard input and ends when that does, so it does not outlive this process. The folders stay: they
are mounted into containers that run.
"""

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path

import structlog

from deviceplugin.mps import exchange, processes
from deviceplugin.mps.control import Commands, Control, ControlError, Server
from deviceplugin.mps.exchange import Process

log = structlog.get_logger()

START_S = 20.0
"""Longest time from the start of the daemon to a server."""
QUIT_S = 10.0
"""Longest time from the command to quit to the end of the daemon."""
RETRY_S = 0.1
LOG_BYTES = 4 << 20
"""Of each log."""


class Daemon:
    """At most one process; `processes` are those of the daemon and its servers as last seen."""

    def __init__(self, control: Control, commands: Commands, folder: Path, multi_user: bool) -> None:
        self._control, self.commands, self._folder, self._multi_user = control, commands, folder, multi_user
        self._child: asyncio.subprocess.Process | None = None
        self.processes: tuple[Process, ...] = ()

    @property
    def made(self) -> bool:
        """Whether a daemon was started and not stopped."""
        return self._child is not None

    @property
    def ended(self) -> bool:
        """Whether the process has ended by itself."""
        return self._child is not None and self._child.returncode is not None

    def servers_alive(self) -> bool:
        """Whether a server lives that was seen before."""
        own = self._child.pid if self._child is not None else 0
        return any(processes.alive(process) for process in self.processes if process.pid != own)

    def lingers(self) -> bool:
        """Whether a process could not be ended: it may be stuck in the driver."""
        return not self.made and any(map(processes.alive, self.processes))

    async def start(self) -> None:
        """Start the daemon and its server; raises ControlError, and then nothing of it runs."""
        self._prepare()
        try:
            self._child = await asyncio.create_subprocess_exec(
                self._control.program,
                *self.commands.daemon(self._multi_user),
                env=self._control.environment,
                stdin=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ControlError(f"{self._control.program} cannot be run ({error.strerror})") from error
        self.note(())
        try:
            await self._served()
        except ControlError:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the daemon and its servers: by its own command, then by signals."""
        child, self._child = self._child, None
        if child is not None and child.returncode is None:
            with suppress(ControlError):
                await self.commands.quit()
            with suppress(TimeoutError):
                async with asyncio.timeout(QUIT_S):
                    await child.wait()
        await processes.end(self.processes)
        if child is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(processes.GRACE_S):
                    await child.wait()
        self.processes = tuple(filter(processes.alive, self.processes))

    def note(self, servers: tuple[Server, ...] | list[Server]) -> None:
        """Remember the processes to end, whatever becomes of the daemon."""
        pids = [self._child.pid] if self._child is not None else []
        found = (processes.of(pid) for pid in [*pids, *(server.pid for server in servers)])
        old = (process for process in self.processes if processes.alive(process))
        self.processes = tuple(dict.fromkeys([*(process for process in found if process), *old]))

    def trim(self) -> None:
        """Empty logs that have grown long: they are in memory."""
        for log_file in (self._folder / "log").rglob("*.log"):
            with suppress(OSError):
                if log_file.stat().st_size > LOG_BYTES:
                    os.truncate(log_file, 0)

    def _prepare(self) -> None:
        """Make the folders, and remove what a daemon left in them."""
        for name in (exchange.PIPE, "log"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        for left in (self._folder / exchange.PIPE).iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)

    async def _served(self) -> None:
        """Wait until the daemon answers, and start the server. Raises ControlError."""
        deadline = asyncio.get_running_loop().time() + START_S
        while True:
            if self.ended:
                assert self._child is not None
                raise ControlError(f"the control daemon ended with status {self._child.returncode}")
            try:
                self.note(await self.commands.servers())
                break
            except ControlError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(RETRY_S)
        await self.commands.start_server()
        self.note(await self.commands.servers())
