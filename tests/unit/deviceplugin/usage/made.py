"""Pods as holders, fake trees of /proc, and real processes in real groups."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from deviceplugin.cgroups import Group
from deviceplugin.usage.holders import Holder, MeasuredContainer, MeasuredPod, MeasuredStatus, Promise
from deviceplugin.usage.places import Place, Placed
from deviceplugin.usage.processes import Process, Sample
from protos.contract.inventory import Inventory
from protos.contract.isolation import Isolation
from protos.contract.objects import Pod
from tests.unit.deviceplugin import builders

MIB, GIB = 2**20, 2**30
MAKER = {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {"f:spec": {"f:containers": {}}}}
KUBECTL = {"manager": "kubectl-edit", "fieldsV1": {"f:metadata": {"f:annotations": {"f:gangshare.io/allocation": {}}}}}
PLUGIN = {**KUBECTL, "manager": "gangshare-plugin", "subresource": "status"}


def uid(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012x}"


def container_id(number: int) -> str:
    return f"{number:064x}"


def group(number: int) -> Group:
    """The group of the container `main` of pod `number`."""
    return Group(uid(number), container_id(number))


def an_inventory(*mems: int, isolation: Isolation | None = None) -> Inventory:
    return msgspec.structs.replace(builders.an_inventory(*mems), isolation=isolation)


def a_holder(number: int, mem: int = 4, gpu: int = 0, *, whole: bool = False, **fields: Any) -> Holder:
    """A pod with `mem` GiB of one GPU of 16."""
    usual: dict[str, Any] = {
        "namespace": "default",
        "name": f"p{number}",
        "uid": uid(number),
        "asks": True,
        "containers": {container_id(number): "main"},
        "promises": (Promise("main", f"GPU-{gpu}", mem * 1024, whole),) if mem else (),
        "parts": {f"GPU-{gpu}": 1.0 if whole else mem / 16} if mem else {},
    }
    return Holder(**{**usual, **fields})


def on(gpu: int, *processes: tuple[int, Place, float | None], sm: dict[int, float] | None = None) -> Placed:
    """A GPU with processes: each a pid, its place, and GiB of memory."""
    listed = tuple(Process(pid, None if mem is None else int(mem * GIB)) for pid, _, mem in processes)
    return Placed(Sample(f"GPU-{gpu}", listed, sm), {pid: (place, pid) for pid, place, _ in processes})


def silent(gpu: int) -> Placed:
    return Placed(Sample(f"GPU-{gpu}", trouble="NVML does not tell its processes (GPU is lost)"))


def a_pod(pod: Pod, *, managed: Sequence[dict[str, Any]] = (MAKER,), ids: dict[str, str] | None = None) -> MeasuredPod:
    """A pod of the plugin's builders as the measuring process reads it; `ids` of its containers, by name."""
    metadata = msgspec.structs.replace(pod.metadata, managed_fields=msgspec.Raw(msgspec.json.encode(managed)))
    statuses = tuple(
        MeasuredContainer(name=name, container_id=f"containerd://{found}") for name, found in (ids or {}).items()
    )
    status = MeasuredStatus(phase=pod.status.phase, container_statuses=statuses)
    return MeasuredPod(metadata=metadata, spec=pod.spec, status=status)


def in_proc(proc: Path, pid: int, path: str, start: int = 0, name: str = "python") -> None:
    """A process of a fake /proc; `start` in ticks since boot."""
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "cgroup").write_text(f"0::{path}\n")
    fields = ["S", *["0"] * 18, str(start), "0"]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


def path_of(found: Group) -> str:
    slice_ = f"kubepods-burstable-pod{found.pod.replace('-', '_')}.slice"
    return f"/kubepods.slice/kubepods-burstable.slice/{slice_}/cri-containerd-{found.container}.scope"


def unified() -> Path | None:
    """A writable hierarchy of cgroup v2 on this machine, None without one."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    for _, where, kind, *_ in mounts:
        root = Path(where)
        if kind == "cgroup2":
            try:
                (root / "gangshare-probe").mkdir()
                (root / "gangshare-probe").rmdir()
            except OSError:
                continue
            return root
    return None


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A real process, which does nothing."""
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        if child.stdin:
            child.stdin.close()


@contextmanager
def in_group(root: Path, found: Group, pid: int) -> Iterator[None]:
    """Put a real process into the real group of a container."""
    where = root / path_of(found).lstrip("/")
    made = [where, *list(where.parents)[:3]]
    where.mkdir(parents=True)
    try:
        (where / "cgroup.procs").write_text(str(pid))
        yield
        with suppress(OSError):  # it may have ended
            (root / "cgroup.procs").write_text(str(pid))
    finally:
        for each in made:
            try:
                each.rmdir()
            except OSError:
                break
