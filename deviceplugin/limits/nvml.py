"""NVIDIA's driver as the helper uses it. A missing call or right is an error with a sentence."""

from typing import Any

from deviceplugin.isolation import driver
from deviceplugin.limits.protocol import LimitError
from deviceplugin.machine import MemoryLimit, SourceError
from deviceplugin.nvml import NvmlSource


class NvmlDriver:
    """Memory limits through NVML; `nvml` is the module pynvml, or a fake of it."""

    def __init__(self, nvml: Any) -> None:
        self._nvml, self._source = nvml, NvmlSource(nvml)

    def memory(self) -> dict[str, int]:
        """Bytes of each GPU that can be limited, by UUID; raises LimitError."""
        found = {}
        for uuid, handle in self._handles().items():
            try:
                if not self._mig(handle):
                    found[uuid] = int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total)
            except self._nvml.NVMLError as error:
                raise LimitError(f"the driver does not tell the memory of {uuid} ({error})") from error
        return found

    def set(self, uuid: str, group: str, hard: int) -> None:
        """Limit a control group to so many bytes; raises LimitError."""
        nvml = self._nvml
        try:
            driver.set_memory_limit(nvml, self._handle(uuid), group, hard)
        except nvml.NVMLError_NoPermission as error:
            raise LimitError("the helper may not set limits: it needs root and SYS_ADMIN") from error
        except nvml.NVMLError_FunctionNotFound as error:
            raise LimitError(f"the driver lacks {driver.SETTER}: limits need driver 615 or later") from error
        except nvml.NVMLError as error:
            raise LimitError(f"the driver does not limit {group} to {hard} bytes of {uuid} ({error})") from error

    def get(self, uuid: str, group: str) -> MemoryLimit | None:
        """The limit of a control group, None if it has none; raises LimitError."""
        try:
            return driver.memory_limit(self._nvml, self._handle(uuid), group)
        except self._nvml.NVMLError as error:
            raise LimitError(f"the driver does not tell the limit of {group} ({error})") from error

    def _handle(self, uuid: str) -> Any:
        handle = self._handles().get(uuid)
        if handle is None:
            raise LimitError(f"this machine has no GPU {uuid}")
        return handle

    def _handles(self) -> dict[str, Any]:
        try:
            return self._source.handles()
        except SourceError as error:
            raise LimitError(str(error)) from error

    def _mig(self, handle: Any) -> bool:
        try:
            return self._nvml.NVML_FEATURE_ENABLED in self._nvml.nvmlDeviceGetMigMode(handle)
        except self._nvml.NVMLError:
            return False  # most GPUs have no such mode
