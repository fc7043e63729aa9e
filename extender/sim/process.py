"""Child processes with their output in a file."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

STOP_SECONDS = 10.0


class ProcessError(Exception):
    """A child process ended by itself or was never started; with the end of its output."""


class Process:
    """A command that can be restarted. Its output is appended to ``<folder>/<name>.log``."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name, self._command = name, command
        self.log = folder / f"{name}.log"
        self._child: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.returncode is None

    @property
    def pid(self) -> int:
        if self._child is None:
            raise ProcessError(f"{self.name} was never started")
        return self._child.pid

    async def start(self) -> None:
        with self.log.open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._child, self._stopping = child, False

    def check(self) -> None:
        """Raise ProcessError if the process has ended by itself."""
        if self._child is not None and self._child.returncode is not None and not self._stopping:
            raise ProcessError(f"{self.name} ended with code {self._child.returncode}:\n{self.tail()}")

    def tail(self, lines: int = 15) -> str:
        """The end of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal (TERM, KILL, STOP, CONT) if the process runs."""
        if self._child is not None and self.running:
            self._stopping |= number in (signal.SIGTERM, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)

    async def stop(self, kill: bool = False) -> None:
        """Terminate the process, or kill it at once, and wait for its end. KILL follows TERM after 10 s."""
        if self._child is None:
            return
        self.signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._child.wait()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self._child.wait()

    async def restart(self, kill: bool = False) -> None:
        await self.stop(kill)
        await self.start()


def free_port() -> int:
    """A free TCP port of 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
