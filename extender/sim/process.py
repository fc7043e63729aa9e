"""A child process with its output in a file: started, signalled, ended and waited for by its id."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

STOP_SECONDS = 10.0


class ProcessError(Exception):
    """A child process is not what it should be: names it, and the end of its output."""


class Process:
    """One command that can be started again and again; its output is appended to ``<folder>/<name>.log``."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name, self._command = name, command
        self.log = folder / f"{name}.log"
        self._child: asyncio.subprocess.Process | None = None
        self._told_to_end = False

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
        self._child, self._told_to_end = child, False

    def check(self) -> None:
        """ProcessError when the process has ended by itself."""
        if self._child is not None and self._child.returncode is not None and not self._told_to_end:
            raise ProcessError(f"{self.name} ended with code {self._child.returncode}:\n{self.tail()}")

    def tail(self, lines: int = 15) -> str:
        """The end of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal (TERM, KILL, STOP, CONT) to the process if it runs."""
        if self._child is not None and self.running:
            self._told_to_end |= number in (signal.SIGTERM, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)

    async def stop(self, kill: bool = False) -> None:
        """TERM (after 10 s KILL), or KILL at once; returns when it has ended."""
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
    """A TCP port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
