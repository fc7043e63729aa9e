"""Control groups of containers: which container a process is in, and the directory of a container's group.

Paths of the systemd and cgroupfs drivers of the kubelet, with containerd, CRI-O and cri-dockerd. Only cgroup v2.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")
_POD = re.compile(r"(?:^|-)pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})$")
"""The group of a pod: `kubepods-burstable-pod<UID>` or `pod<UID>`. Static pods have UIDs without hyphens."""
_CONTAINER = re.compile(r"^(?:(?:cri-containerd|crio|docker)-)?([0-9a-f]{64})(?:\.scope)?$")
DEEPEST = 6
"""Directories between the root and a pod's: `kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice`."""
MOST = 20_000
"""Directories that one look reads. A node has a few hundred."""
LINE = 4096
"""Bytes of a process's path that are read."""
BELOW = 256
"""Groups of one container whose processes are read."""
LIST = 256 << 10
"""Bytes of a group's list of processes that are read."""


class Group(NamedTuple):
    """A container by the UID of its pod and the runtime's ID."""

    pod: str
    container: str


def unified(root: Path = ROOT) -> bool:
    """Whether this is the root of a cgroup v2 hierarchy."""
    return (root / "cgroup.controllers").is_file()


def holds_pods(name: str) -> bool:
    """Whether groups of pods are below a group of this name."""
    return "kubepods" in name or "kubelet" in name


def shows_pods(root: Path = ROOT) -> bool:
    """Whether the groups of pods are below this root. A container may see its own part of the hierarchy only."""
    try:
        return any(holds_pods(entry.name) for entry in root.iterdir())
    except OSError:
        return False


def of_path(path: str) -> Group | None:
    """The container whose group, or a group below it, has this path; None for other groups."""
    parts = path.split("/")
    for above, below in pairwise(parts):
        pod, container = _pod(above), _CONTAINER.match(below)
        if pod and container:
            return Group(pod, container[1])
    return None


def of_process(pid: int, proc: Path = PROC) -> Group | None:
    """The container of a process; None if it is in none, or has ended."""
    try:
        with (proc / str(pid) / "cgroup").open("rb") as file:
            text = file.read(LINE).decode(errors="replace")
    except OSError:
        return None
    unified = (line.removeprefix("0::") for line in text.splitlines() if line.startswith("0::"))
    return of_path(next(unified, ""))


def containers(root: Path = ROOT) -> dict[Group, Path]:
    """The directories of all containers of pods."""
    found: dict[Group, Path] = {}
    for pod, directory in pods(root):
        for child in _directories(directory):
            if container := _CONTAINER.match(child.name):
                found[Group(pod, container[1])] = Path(child.path)
    return found


def processes(directory: Path) -> frozenset[int]:
    """The processes of a group and of those below it, as far as they are seen from our PID namespace."""
    found: set[int] = set()
    waiting = [directory]
    for _ in range(BELOW):
        if not waiting:
            break
        here = waiting.pop()
        waiting += [Path(child.path) for child in _directories(here)]
        try:
            with (here / "cgroup.procs").open("rb") as file:
                content = file.read(LIST)
        except OSError:
            continue  # it has gone
        whole = content if len(content) < LIST else content.rpartition(b"\n")[0]
        found.update(int(line) for line in whole.split() if line.isdigit())
    return frozenset(found - {0})  # 0 stands for a process of another namespace


def shows_processes(root: Path = ROOT) -> bool:
    """Whether processes of other containers than our own are seen."""
    own = os.getpid()
    return any(own not in (found := processes(each)) and found for each in containers(root).values())


def of_pod(uid: str, root: Path = ROOT) -> Path | None:
    """The directory of a pod's group; None if it has none."""
    return next((directory for found, directory in pods(root) if found == uid), None)


def of_container(group: Group, root: Path = ROOT) -> Path | None:
    """The directory of a container's group; None if it has none."""
    above = of_pod(group.pod, root)
    for child in _directories(above) if above else ():
        container = _CONTAINER.match(child.name)
        if container and container[1] == group.container:
            return Path(child.path)
    return None


def pods(root: Path = ROOT) -> Iterator[tuple[str, Path]]:
    """UID and directory of all pods."""
    level, left = [root], MOST
    for _ in range(DEEPEST):
        below: list[Path] = []
        for directory in level:
            for child in _directories(directory):
                left -= 1
                if left < 0:
                    return
                if pod := _pod(child.name):
                    yield pod, Path(child.path)
                elif holds_pods(child.name) or directory.name in ("kubepods", "kubelet"):
                    below.append(Path(child.path))
        level = below


def _directories(directory: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            yield from (entry for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return  # it has gone


def _pod(name: str) -> str:
    """The UID of the pod whose group has this name, "" for another group."""
    found = _POD.search(name.removesuffix(".slice"))
    return found[1].replace("_", "-") if found else ""
