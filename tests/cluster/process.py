"""Processes with a log file, a process group and a run they belong to.

Everything a run starts carries its id in the environment (`GANGSHARE_RUN`), so that whatever outlives its parent, a
container shim for one, is still found and ended by id.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

RUN_VARIABLE = "GANGSHARE_RUN"
T = TypeVar("T")


class HarnessError(Exception):
    """The cluster could not be brought to the state that was asked for."""


def wait_for(predicate: Callable[[], T | None], timeout: float, what: str, *, every: float = 0.1) -> T:
    """The first truthy answer of `predicate`, asked every `every` seconds.

    Raises HarnessError after `timeout` seconds with `what` and the last answer; an AssertionError, LookupError or
    OSError (an API server's error is one) of the predicate counts as "not yet".
    """
    deadline = time.monotonic() + timeout
    while True:
        seen: object
        try:
            answer = predicate()
            if answer:
                return answer
            seen = answer
        except (AssertionError, LookupError, OSError) as error:
            seen = error
        if time.monotonic() > deadline:
            raise HarnessError(f"after {timeout:g} s still no {what}; last seen: {seen!r}")
        time.sleep(every)


class Process:
    """One program of a run: started, signalled, stopped and started again under the same name and log file."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | os.PathLike[str]],
        *,
        run: str,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        hostname: str | None = None,
        namespace_of: int | None = None,
    ) -> None:
        """`hostname` gives it a UTS namespace with that name; `namespace_of` the mount namespace of that pid."""
        self.name = name
        self.log = log
        self._argv = [*_enter(namespace_of), *_rename(hostname), *(os.fspath(word) for word in argv)]
        self._env = {**os.environ, **(env or {}), RUN_VARIABLE: run}
        self._cwd = cwd
        self._child: subprocess.Popen[bytes] | None = None
        self._told = False
        """It was told to stop."""

    def start(self) -> Process:
        if self.alive:
            raise HarnessError(f"{self.name} runs already as pid {self.pid}")
        self._told = False
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
            )
        return self

    @property
    def pid(self) -> int:
        if self._child is None:
            raise HarnessError(f"{self.name} was never started")
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for the signal that ended it; None while it runs."""
        return self._child.poll() if self._child else None

    def signal(self, number: signal.Signals) -> None:
        """Send to the whole process group; nothing happens when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, as a crash would have it, and reap."""
        if self._child is not None:
            self.signal(signal.SIGKILL)
            self._child.wait()

    def terminate(self) -> None:
        """SIGTERM once, without waiting: several processes take their time to stop together."""
        if self.alive and not self._told:
            self._told = True
            self.signal(signal.SIGTERM)
            self.resume()

    def stop(self, timeout: float = 10.0) -> None:
        """SIGTERM, then SIGKILL after `timeout` seconds, and reap."""
        if self._child is None:
            return
        self.terminate()
        if self._child.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout)
        self.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def text(self) -> str:
        """The whole log, of all its starts."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait_until(self, ready: Callable[[], object], timeout: float, what: str) -> None:
        """Wait for `ready`; raises HarnessError with the log's end when the process dies or `timeout` s are over."""

        def ready_or_dead() -> bool:
            return not self.alive or bool(ready())

        try:
            wait_for(ready_or_dead, timeout, what)
        except HarnessError as error:
            raise HarnessError(f"{error}\n{self._log_end()}") from error
        if not self.alive:
            raise HarnessError(f"{self.name} ended with status {self.returncode} before {what}\n{self._log_end()}")

    def _log_end(self) -> str:
        return f"--- end of {self.log}\n" + "\n".join(self.text().splitlines()[-15:])


def _enter(pid: int | None) -> list[str]:
    return [] if pid is None else ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "--"]


def _rename(hostname: str | None) -> list[str]:
    return [] if hostname is None else ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', hostname]
