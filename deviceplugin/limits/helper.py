"""Whether a limit may be set, and whether it holds once it is set. Calls block.

A limit of a pod must hold for the groups of its containers, which are below. The kernel's controller `dmem` does that,
the driver's own bookkeeping on older kernels does not. So a pod's limit counts only if the kernel shows it.
"""

import contextlib
import time
from collections import Counter
from pathlib import Path
from typing import Protocol

from deviceplugin import cgroups
from deviceplugin.cgroups import Group
from deviceplugin.limits.protocol import Hello, Limit, LimitError, Request
from deviceplugin.machine import MemoryLimit

MIB = 2**20
TRIAL = "gangshare-limits"
"""The group on which setting is tried."""
NESTED = "dmem.max"
NESTED_BYTES = 2**16
PROVED_S = 60.0
"""What a trial has shown counts for so long."""
UNNESTED = (
    "the kernel's controller dmem does not reach the control groups of pods (kernel 6.14 or later), so the limit of a "
    "pod would not hold for its containers"
)


class Driver(Protocol):
    """What the helper asks of the driver; each call raises LimitError."""

    def memory(self) -> dict[str, int]:
        """Bytes of each GPU that can be limited, by UUID."""
        ...

    def set(self, uuid: str, group: str, hard: int) -> None:
        """Limit a control group, by its directory, to so many bytes."""
        ...

    def get(self, uuid: str, group: str) -> MemoryLimit | None:
        """The limit of a control group, None if it has none."""
        ...


class Helper:
    """Sets limits on control groups of pods below one root."""

    def __init__(self, driver: Driver, groups: Path) -> None:
        self._driver, self._groups = driver, groups
        self._tried_at, self._tried = -PROVED_S, ""

    def answer(self, request: Request) -> str:
        """Do what is asked; returns why it could not be done, "" if it was."""
        try:
            match request:
                case Hello():
                    return self._proof()
                case Limit():
                    self._limit(request)
        except LimitError as error:
            return str(error)
        return ""

    def _proof(self) -> str:
        """Why limits of pods cannot be set here, by a trial that is repeated now and then."""
        now = time.monotonic()
        if now - self._tried_at >= PROVED_S:
            self._tried_at, self._tried = now, ""
            try:
                self._try()
            except LimitError as error:
                self._tried = str(error)
        return self._tried

    def _try(self) -> None:
        """Limit a group of our own beside those of pods to all memory of each GPU, and read it back."""
        if not cgroups.unified(self._groups):
            raise LimitError(f"{self._groups} has no cgroup v2")
        _, pod = next(cgroups.pods(self._groups), ("", None))
        if pod is None:
            raise LimitError(f"there is no control group of a pod below {self._groups}")
        if not (pod / NESTED).exists():
            raise LimitError(UNNESTED)
        memory = self._driver.memory()
        if not memory:
            raise LimitError("no GPU of this machine can be limited")
        group = pod.parent / TRIAL
        try:
            group.mkdir(exist_ok=True)
            for uuid, total in memory.items():
                self._set(uuid, group, total)
        except OSError as error:
            raise LimitError(f"{group} cannot be made ({error.strerror})") from error
        finally:
            with contextlib.suppress(OSError):
                group.rmdir()

    def _limit(self, asked: Limit) -> None:
        memory = self._driver.memory()
        for uuid, mib in asked.mib.items():
            if uuid not in memory:
                raise LimitError(f"this machine has no GPU {uuid} that can be limited")
            if mib * MIB > memory[uuid]:
                raise LimitError(f"{mib} MiB is more than GPU {uuid} has ({memory[uuid] // MIB} MiB)")
        group = self._group(asked)
        for uuid, mib in asked.mib.items():
            self._set(uuid, group, mib * MIB)
        if not asked.container:
            for mib, gpus in Counter(asked.mib.values()).items():
                if shown(group, mib * MIB) < gpus:
                    raise LimitError(
                        f"{group / NESTED} does not show the limit of {mib} MiB on {gpus} GPUs: {UNNESTED}"
                    )

    def _group(self, asked: Limit) -> Path:
        if asked.container:
            found = cgroups.of_container(Group(asked.pod, asked.container), self._groups)
        else:
            found = cgroups.of_pod(asked.pod, self._groups)
        if found is None:
            raise LimitError(f"pod {asked.pod} has no such control group below {self._groups}")
        return found

    def _set(self, uuid: str, group: Path, hard: int) -> None:
        self._driver.set(uuid, str(group), hard)
        read = self._driver.get(uuid, str(group))
        if read is None or read.hard != hard:
            told = "none" if read is None else f"{read.hard} bytes"
            raise LimitError(f"the driver was told a limit of {hard} bytes for {group}, and tells {told}")


def shown(group: Path, hard: int) -> int:
    """On how many GPUs the kernel's controller shows this limit of memory."""
    try:
        with (group / NESTED).open("rb") as file:
            text = file.read(NESTED_BYTES).decode(errors="replace")
    except OSError:
        return 0
    regions = (line.split() for line in text.splitlines() if line.startswith("nvidia/"))
    return sum(region[1:] == [str(hard)] for region in regions)
