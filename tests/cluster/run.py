"""One run: an id, a folder, a slot of the machine, and all processes; whatever happens, nothing of it stays."""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster import host, remnants
from tests.cluster.process import Process


class Run:
    """Ended by close(), by the interpreter's exit, or, when it was killed, by the next run that starts."""

    def __init__(self) -> None:
        remnants.sweep()
        self.id = f"{remnants.PREFIX}{secrets.token_hex(3)}"
        self.slot = host.Slot()
        self.dir = remnants.RUNS / self.id
        self.dir.mkdir(mode=0o755)
        remnants.claim(self.dir)
        atexit.register(self.close)
        _interrupt_on_sigterm()
        host.save_sysctls()
        self.logs = self.dir / "log"
        self.logs.mkdir()
        self._processes: list[Process] = []
        self._guests: list[Process] = []

    def process(
        self,
        name: str,
        argv: Sequence[str | os.PathLike[str]],
        *,
        guest: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        hostname: str | None = None,
        namespace_of: int | None = None,
    ) -> Process:
        """A process of this run, not started yet. A `guest` is ended by SIGTERM first, the rest by SIGKILL."""
        log = self.logs / f"{name}.log"
        made = Process(name, argv, run=self.id, log=log, env=env, cwd=cwd, hostname=hostname, namespace_of=namespace_of)
        (self._guests if guest else self._processes).append(made)
        return made

    def close(self) -> None:
        """End everything. Safe to repeat."""
        for guest in self._guests:
            guest.terminate()
        for guest in self._guests:
            guest.stop()
        remnants.destroy(self.id)
        for process in self._processes:
            process.kill()  # dead already: this reaps
        self.slot.release()
        host.restore_sysctls()
        atexit.unregister(self.close)


def _interrupt_on_sigterm() -> None:
    """SIGTERM unwinds as Ctrl-C does, so that fixtures and `with` blocks end what they began."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
