"""Stands in for the driver as the helper with rights uses it: setter and getter of memory limits, and its faults.

As documented: only root may set; a limit above the GPU's memory is an invalid argument; a group that is gone cannot be
opened; before r615 the call is missing. With the kernel's controller `dmem` the group's `dmem.max` shows the limit;
with the driver's own bookkeeping (`misc`) it does not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from deviceplugin.limits.protocol import LimitError
from deviceplugin.machine import MemoryLimit

MIB = 2**20
NO_LIMITS = "nvidia/0000:01:00.0/vidmem max\n"


class Driver:
    """The limits that a driver keeps, in bytes by directory of the control group and GPU."""

    def __init__(self, memory: dict[str, int], told: Callable[[], None] = lambda: None) -> None:
        """`told` is called after each new limit."""
        self.total, self.limits, self._told = memory, dict[str, dict[str, int]](), told
        self.fault = ""
        """What goes wrong: permission, symbol, deaf (sets nothing), misc, hang."""
        self.hanging = threading.Event()

    def memory(self) -> dict[str, int]:
        return dict(self.total)

    def set(self, uuid: str, group: str, hard: int) -> None:
        if self.fault == "hang":
            self.hanging.wait()
        if self.fault == "permission":
            raise LimitError("the helper may not set limits: it needs root and SYS_ADMIN")
        if self.fault == "symbol":
            raise LimitError("the driver lacks nvmlDeviceSetMemoryLimits_v1")
        if not Path(group).is_dir():
            raise LimitError(f"the operating system cannot open {group}")
        if hard > self.total[uuid]:
            raise LimitError("invalid argument")
        if self.fault == "deaf":
            return
        self.limits.setdefault(group, {})[uuid] = hard
        shown = Path(group) / "dmem.max"
        if self.fault != "misc" and shown.exists():
            shown.write_text("".join(f"nvidia/{key}/vidmem {bytes_}\n" for key, bytes_ in self.limits[group].items()))
        self._told()

    def get(self, uuid: str, group: str) -> MemoryLimit | None:
        if not Path(group).is_dir():
            raise LimitError(f"the operating system cannot open {group}")
        hard = self.limits.get(group, {}).get(uuid)
        return None if hard is None else MemoryLimit(hard)


def make_pod(root: Path, uid: str, nested: bool = True) -> Path:
    """The control group of a pod, as the kubelet's systemd driver makes it."""
    above = root / "kubepods.slice/kubepods-burstable.slice"
    group = above / f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
    group.mkdir(parents=True, exist_ok=True)
    if nested and not (group / "dmem.max").exists():
        (group / "dmem.max").write_text(NO_LIMITS)
    return group
