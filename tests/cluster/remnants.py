"""Ending a run by its id alone: its processes, cgroups, address rules and folder.

Works for one's own run and for a run whose process was killed, since nothing but the id is needed: processes carry
it in their environment, containers in the name of their cgroup, rules in a comment. Mounts, network namespaces and
veth pairs live in namespaces of those processes and go with them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from pathlib import Path

from tests.cluster import cgroups, host
from tests.cluster.process import RUN_VARIABLE, wait_for

RUNS = Path("/tmp")  # short: a unix socket's path has 107 bytes
PREFIX = "gs-"
_OWNER = "owner"


def claim(folder: Path) -> None:
    """Say which process a run belongs to."""
    draft = folder / f"{_OWNER}.draft"
    draft.write_text(f"{os.getpid()} {_start_time(os.getpid())}")
    draft.rename(folder / _OWNER)


def sweep() -> list[str]:
    """End every run whose owner is dead; their ids."""
    dead = [folder.name for folder in RUNS.glob(f"{PREFIX}*") if _abandoned(folder)]
    for run in dead:
        destroy(run)
    return dead


def _abandoned(folder: Path) -> bool:
    owner = folder / _OWNER
    if not owner.exists():
        return False  # being set up this moment, or none of ours
    pid, started = owner.read_text().split()
    return _start_time(int(pid)) != started


def _start_time(pid: int) -> str:
    """Clock ticks since boot at which a process began, "" when there is none: with the pid its identity."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def destroy(run: str) -> None:
    """End everything of a run. Safe to repeat."""
    wait_for(lambda: _killed(run), 20, f"end of all processes of {run}")
    for top in cgroups.of_run(run):
        cgroups.remove(top)
    host.remove_redirects(run)
    shutil.rmtree(RUNS / run, ignore_errors=True)


def _killed(run: str) -> bool:
    """Whether none is left, after another round of SIGKILL."""
    left = processes(run)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return not left


def processes(run: str) -> list[int]:
    """The living processes of a run, zombies aside."""
    return [pid for pid in _pids() if _belongs(pid, run)]


def in_cgroup(name: str) -> list[int]:
    """The living processes in the cgroup `name` or below."""
    return [pid for pid in _pids() if re.search(rf":/{name}(/|$)", _cgroup(pid), re.MULTILINE)]


def in_mount_namespace(run: str, namespace: str) -> list[int]:
    """The living processes of a run in one mount namespace."""
    return [pid for pid in processes(run) if mount_namespace(pid) == namespace]


def mount_namespace(pid: int) -> str:
    """Such as `mnt:[4026532177]`; "" when the process is gone."""
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    return ""


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _belongs(pid: int, run: str) -> bool:
    return f"{RUN_VARIABLE}={run}\0" in _environment(pid) or f":/{run}-" in _cgroup(pid)


def _cgroup(pid: int) -> str:
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            return Path(f"/proc/{pid}/cgroup").read_text()
    return ""


def _environment(pid: int) -> str:
    """Empty for a zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    return ""
