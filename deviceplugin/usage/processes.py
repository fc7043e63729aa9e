"""The processes on the GPUs of this node as the driver tells them, and a stand-in of the driver.

The lists of compute, graphics and MPS processes have pids of the caller's PID namespace and below. MIG instances have
lists of their own, and that of their GPU may have the same processes. Each call that
this driver, GPU or pynvml lacks leaves only its own part unknown. Source: NVML API reference,
docs.nvidia.com/deploy/nvml-api.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from deviceplugin.fake import FakeSource
from deviceplugin.machine import SourceError
from deviceplugin.mig.instances import Instances
from deviceplugin.nvml import NvmlSource

LISTS = (
    ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ("nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
    ("nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses_v2"),
)
"""The lists of processes; of each the newest form, and an older one for drivers without it (before 510)."""
MIB = 2**20
TRIES = 3
"""Of a list that grows while it is read."""
FULL = 100
"""Percent of a GPU. Of a process that has just ended, drivers have told nonsense beyond it."""


class Process(NamedTuple):
    """A process on a GPU. Its memory, in bytes, is None where the driver does not tell it."""

    pid: int
    memory: int | None


class Sample(NamedTuple):
    """One GPU or MIG instance at one moment."""

    uuid: str
    processes: tuple[Process, ...] = ()
    sm: Mapping[int, float] | None = None
    """What part of the GPU's SM time the processes took since the last sample, by pid; None: the driver cannot tell."""
    trouble: str = ""
    """Why the GPU does not answer, "" if it does."""


class Processes(Protocol):
    """Reads the processes. Calls may block, and come one at a time from a worker thread."""

    def read(self) -> tuple[Sample, ...]:
        """All GPUs that answer at all; raises SourceError."""
        ...

    def close(self) -> None: ...


class NvmlProcesses:
    """The processes that the NVIDIA driver shows; `nvml` is the module pynvml, or a fake of it."""

    def __init__(self, nvml: Any) -> None:
        self._nvml, self._source = nvml, NvmlSource(nvml)
        self._last: dict[str, int] = {}
        """Time of the newest sample of use that was read, in µs, by UUID."""
        self._absent = (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_NoPermission,
            nvml.NVMLError_ArgumentVersionMismatch,
            AttributeError,
        )
        """Errors of a call that this driver, GPU or pynvml does not have."""
        self._instances = Instances(nvml, (*self._absent, nvml.NVMLError_InvalidArgument, nvml.NVMLError_NotFound))

    def read(self) -> tuple[Sample, ...]:
        found = []
        for uuid, handle in self._source.handles().items():
            found.append(self._sample(uuid, handle))
            with suppress(self._nvml.NVMLError):
                found += [self._sample(own, device) for _, own, device in self._instances.devices(handle)]
        return tuple(found)

    def close(self) -> None:
        self._source.close()

    def _sample(self, uuid: str, handle: Any) -> Sample:
        try:
            return Sample(uuid, self._listed(handle), self._sm(uuid, handle))
        except self._nvml.NVMLError as error:
            return Sample(uuid, trouble=f"NVML does not tell its processes ({error})")

    def _listed(self, handle: Any) -> tuple[Process, ...]:
        """Each process once, with the most memory that a list tells of it."""
        found: dict[int, int | None] = {}
        lists = [each for names in LISTS if (each := self._first(names, handle)) is not None]
        if not lists:
            raise self._nvml.NVMLError_NotSupported
        for listed in lists:
            for each in listed:
                known, memory = found.get(each.pid), each.usedGpuMemory
                found[each.pid] = memory if known is None else max(known, memory or 0)
        return tuple(Process(pid, memory) for pid, memory in found.items())

    def _first(self, names: tuple[str, ...], handle: Any) -> list[Any] | None:
        """The answer of the first of these calls that exists, None if none does."""
        for name in names:
            try:
                call: Callable[[Any], list[Any]] = getattr(self._nvml, name)
                return self._whole(lambda call=call: call(handle))  # type: ignore[misc]  # bound now
            except self._absent:
                continue
        return None

    def _whole(self, call: Callable[[], list[Any]]) -> list[Any]:
        """The list; pynvml asks for its length first, and processes may come in between."""
        for _ in range(TRIES):
            with suppress(self._nvml.NVMLError_InsufficientSize):
                return call()
        return call()

    def _sm(self, uuid: str, handle: Any) -> dict[int, float] | None:
        since = self._last.get(uuid, 0)
        try:
            samples = self._whole(lambda: self._nvml.nvmlDeviceGetProcessUtilization(handle, since))
        except self._nvml.NVMLError as error:
            nothing = (self._nvml.NVML_ERROR_NOT_FOUND, self._nvml.NVML_SUCCESS)  # pynvml raises for an empty list, too
            return {} if error.value in nothing else None
        except AttributeError:
            return None
        newest: dict[int, tuple[int, int]] = {}
        for each in samples:
            if each.timeStamp > since and each.smUtil <= FULL:
                newest[each.pid] = max(newest.get(each.pid, (0, 0)), (each.timeStamp, each.smUtil))
        self._last[uuid] = max([since, *(time for time, _ in newest.values())])
        return {pid: percent / FULL for pid, (_, percent) in newest.items()}


class FakeProcesses:
    """The processes of a fake profile, which is read again when it changes. Raises FileError if it cannot be used."""

    def __init__(self, profile: str, node: str) -> None:
        self._source = FakeSource(profile, node)

    def read(self) -> tuple[Sample, ...]:
        found = []
        for uuid, fakes in self._source.processes():
            processes = tuple(Process(each.pid, None if each.mem_mib is None else each.mem_mib * MIB) for each in fakes)
            sm = {each.pid: each.sm / FULL for each in fakes if each.sm is not None}
            told = any(each.sm is not None for each in fakes) or not fakes
            found.append(Sample(uuid, processes, sm if told else None))
        if not found:
            raise SourceError("the profile has no GPU")
        return tuple(found)

    def close(self) -> None:
        self._source.close()
