"""Stands in for the memory hook of NVIDIA's container toolkit (1.20.1), and for the driver that keeps the limits.

As documented: the hook does nothing unless both variables are set. It fails, so that the container does not start, on
cgroup v1, on numbers that it cannot read, on a request above the limit, and with a driver that lacks the call. One pair
of numbers holds for all GPUs.

Sources: NVIDIA container toolkit (apply-cuda-memory-limits), "MPS v3 Memory Partitioning".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from deviceplugin import cgroups
from deviceplugin.machine import MemoryLimit, SourceError
from extender.sim.kubelet.runtime import HookError
from protos.contract import names

MIB = 2**20


class Driver(msgspec.Struct):
    """The limits that a driver keeps, in bytes by directory of the control group and GPU."""

    version: str = "615.71.05"
    has_call: bool = True
    memory: dict[str, int] = {}
    """Memory of each GPU."""
    limits: dict[str, dict[str, int]] = {}

    def set(self, uuid: str, group: Path, soft: int, hard: int) -> None:
        if not group.is_dir():
            raise HookError(f"the operating system cannot open {group}")
        if soft > hard or hard > self.memory[uuid]:
            raise HookError("invalid argument")
        self.limits.setdefault(str(group), {})[uuid] = hard

    def get(self, uuid: str, group: str) -> MemoryLimit | None:
        if not Path(group).is_dir():
            raise SourceError(f"the operating system cannot open {group}")
        hard = self.limits.get(group, {}).get(uuid)
        return None if hard is None else MemoryLimit(hard)


def apply_limits(
    env: Mapping[str, str], group: Path, root: Path, driver: Driver, uuids: Iterable[str] | None = None
) -> None:
    """What the hook does for a container with this environment and control group; raises HookError.

    `uuids`: of the GPUs; otherwise those that the environment shows.
    """
    request, limit = env.get(names.MEMORY_REQUEST), env.get(names.MEMORY_LIMIT)
    if request is None or limit is None:
        return
    if not cgroups.unified(root):
        raise HookError(f"{root} is no cgroup v2")
    try:
        soft, hard = int(request) * MIB, int(limit) * MIB
    except ValueError as error:
        raise HookError(f"cannot parse {request!r} or {limit!r}") from error
    if soft > hard:
        raise HookError(f"the request {soft} is above the limit {hard}")
    if not driver.has_call:
        raise HookError("the driver has no nvmlDeviceSetMemoryLimits_v1")
    for uuid in env[names.VISIBLE_DEVICES].split(",") if uuids is None else uuids:
        driver.set(uuid, group, soft, hard)


def group_of(root: Path, pod: str, container: str) -> Path:
    """The control group of a container, as the kubelet's systemd driver and containerd make it."""
    slice_of_pod = f"kubepods-burstable-pod{pod.replace('-', '_')}.slice"
    return root / "kubepods.slice/kubepods-burstable.slice" / slice_of_pod / f"cri-containerd-{container}.scope"
