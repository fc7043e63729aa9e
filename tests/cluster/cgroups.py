"""The cgroups of a node, on machines with cgroup v1 (one tree per controller) and with v2 (one tree)."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.cluster.process import wait_for

_ROOT = Path("/sys/fs/cgroup")
_V2_CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")


def trees() -> list[Path]:
    """Every mounted hierarchy."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return [Path(fields[1]) for fields in mounts if fields[2] in ("cgroup", "cgroup2")]


def unified() -> Path | None:
    """The root of the hierarchy of cgroup v2, also beside those of v1; None without one."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)


def of_run(run: str) -> list[Path]:
    """The top cgroups of a run's nodes, in every hierarchy."""
    return [found for tree in trees() for found in tree.glob(f"{run}-*")]


def create(name: str) -> None:
    """A top cgroup `name` with every controller, for a kubelet's cgroupRoot."""
    if (_ROOT / "cgroup.controllers").exists():
        _delegate()
    for tree in trees():
        made = tree / name
        made.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # v1 alone: an empty set admits no process
            if (tree / file).exists():
                (made / file).write_text((tree / file).read_text())


def _delegate() -> None:
    """v2: hand every controller down from the root; those that are down already stay as they are."""
    for controller in _V2_CONTROLLERS:
        with contextlib.suppress(OSError):  # one that this kernel lacks
            (_ROOT / "cgroup.subtree_control").write_text(f"+{controller}")


def remove(top: Path) -> None:
    """Delete an empty tree of cgroups, leaves first; the kernel needs a moment after the last process ended."""
    wait_for(lambda: _removed(top), 10, f"empty cgroup {top}")


def _removed(top: Path) -> bool:
    for folder in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
    with contextlib.suppress(OSError):
        top.rmdir()
    return not top.exists()
