"""The GPUs as NVML shows them to the component: MIG mode, processes, and the compute mode, which it also sets."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

MIB = 2**20


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU."""

    index: int
    uuid: str
    total_mib: int = 0
    mig: bool = False
    exclusive: bool = False
    """In the compute mode in which one process alone may use it."""
    pids: frozenset[int] = frozenset()
    """Processes that use it."""


class GpuError(Exception):
    """NVML does not answer, or refused."""


class Gpus:
    """Reads all GPUs; `nvml` is the module pynvml, or a fake of it. Calls may block."""

    def __init__(self, nvml: Any) -> None:
        self._nvml, self._ready = nvml, False

    def read(self) -> dict[str, Gpu]:
        """The GPUs by UUID; raises GpuError."""
        nvml = self._nvml
        try:
            if not self._ready:
                nvml.nvmlInit()
                self._ready = True
            found = {}
            for index in range(nvml.nvmlDeviceGetCount()):
                with suppress(nvml.NVMLError):  # a GPU that fell off the bus
                    gpu = self._gpu(index, nvml.nvmlDeviceGetHandleByIndex(index))
                    found[gpu.uuid] = gpu
            return found
        except nvml.NVMLError as error:
            self.close()
            raise GpuError(f"NVML does not answer ({error})") from error

    def make_exclusive(self, uuid: str, exclusive: bool) -> None:
        """Set the compute mode: one process alone, or the default. Raises GpuError."""
        nvml = self._nvml
        mode = nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS if exclusive else nvml.NVML_COMPUTEMODE_DEFAULT
        try:
            nvml.nvmlDeviceSetComputeMode(nvml.nvmlDeviceGetHandleByUUID(uuid), mode)
        except nvml.NVMLError as error:
            raise GpuError(f"the compute mode of {uuid} cannot be set ({error})") from error

    def close(self) -> None:
        if self._ready:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
        self._ready = False

    def _gpu(self, index: int, handle: Any) -> Gpu:
        nvml = self._nvml
        mode = self._try(lambda: nvml.nvmlDeviceGetComputeMode(handle), None)
        return Gpu(
            index=index,
            uuid=str(nvml.nvmlDeviceGetUUID(handle)),
            total_mib=self._try(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // MIB, 0),
            mig=self._try(lambda: nvml.NVML_FEATURE_ENABLED in nvml.nvmlDeviceGetMigMode(handle), False),
            exclusive=mode == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
            pids=self._try(
                lambda: frozenset(process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
                frozenset[int](),
            ),
        )

    def _try(self, read: Callable[[], Any], otherwise: Any) -> Any:
        """What this driver or GPU does not tell has a default."""
        try:
            return read()
        except self._nvml.NVMLError:
            return otherwise
