"""Processes by ID and start, so that a process which got the ID later is never ended."""

import asyncio
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from deviceplugin.mps.exchange import Process

PROC = Path("/proc")
GRACE_S = 3.0
"""Seconds between SIGTERM and SIGKILL."""
LOOK_S = 0.05
STAT = 4096
"""Bytes of a process's status that are read."""


def of(pid: int, proc: Path = PROC) -> Process | None:
    """The process that has this ID now; None if there is none, or it has ended and waits for its parent."""
    try:
        with (proc / str(pid) / "stat").open("rb") as file:
            fields = file.read(STAT).decode(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return Process(pid, int(fields[19])) if len(fields) > 19 and fields[0] not in "ZX" else None


def alive(process: Process) -> bool:
    """Whether this process has not ended."""
    return of(process.pid) == process


async def end(processes: Iterable[Process]) -> None:
    """End these processes, at last by SIGKILL."""
    left = [process for process in processes if alive(process)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
        deadline = asyncio.get_running_loop().time() + GRACE_S
        while left := [process for process in left if alive(process)]:
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(LOOK_S)
