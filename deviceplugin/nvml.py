"""Real GPUs, read by NVML (nvidia-ml-py).

Initialisation is tried again at every reading, so a driver that is loaded later is noticed. A getter that this driver
or GPU does not support leaves only its own field unknown. Source: NVML API reference, docs.nvidia.com/deploy/nvml-api.
"""

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from deviceplugin import nvlink
from deviceplugin.isolation import driver
from deviceplugin.machine import Gpu, Machine, MemoryLimit, SourceError, Xid
from deviceplugin.mig.instances import Instances
from protos.contract.inventory import Fabric

MIB = 2**20
PERIOD_S = 15.0
NO_NUMA = -1
STORM = 1000
"""The most errors that one poll takes."""


class NvmlSource:
    """The GPUs that the NVIDIA driver shows; `nvml` is the module pynvml, or a fake of it."""

    period = PERIOD_S
    trouble = None

    def __init__(self, nvml: Any, *, mig: bool = False) -> None:
        """`mig` says whether the instances of GPUs in MIG mode are read."""
        self.nvml = nvml
        self.ready = False
        self._events: Any = None
        self._uuids: dict[int, str] = {}
        """By address of the handle: a GPU that fell off the bus does not answer with its UUID any more."""
        self._watched: set[str] = set()
        self._facts: dict[str, dict[str, Any]] = {}
        """The fields of each GPU as last read, by UUID."""
        self._unsupported = (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_NoPermission,
            nvml.NVMLError_InvalidArgument,
            nvml.NVMLError_InsufficientSize,
            nvml.NVMLError_ArgumentVersionMismatch,
            nvml.NVMLError_NotFound,
            nvml.NVMLError_NoData,
        )
        self._instances = Instances(nvml, self._unsupported) if mig else None

    def read(self) -> Machine:
        self._start()
        try:
            handles = self._handles()
            gpus = tuple(self._gpu(index, uuid, handle) for index, (uuid, handle) in handles.items())
            self._watch_events(handles)
            links = nvlink.links(self.nvml, [(gpu, handles[gpu.index][1]) for gpu in gpus])
            fabric = next((found for _, handle in handles.values() if (found := self._fabric(handle))), None)
            if self._instances is not None:
                gpus += self._instances.read([(gpu, handles[gpu.index][1]) for gpu in gpus])
            version, limits = driver.version(self.nvml), driver.limits_memory(self.nvml)
        except self.nvml.NVMLError as error:
            self.close()
            raise SourceError(f"NVML does not answer ({error})") from error
        return Machine(gpus=gpus, links=links, fabric=fabric, driver=version, limits=limits)

    def handles(self) -> dict[str, Any]:
        """The handles of the GPUs that answer, by UUID; raises SourceError."""
        self._start()
        try:
            return dict(self._handles().values())
        except self.nvml.NVMLError as error:
            self.close()
            raise SourceError(f"NVML does not answer ({error})") from error

    def poll(self, timeout: float) -> list[Xid]:
        xids: dict[Xid, None] = {}
        for attempt in range(STORM):
            try:
                data = self._wait(0.0 if attempt else timeout)
            except self.nvml.NVMLError:
                break
            if data.eventType == self.nvml.nvmlEventTypeXidCriticalError:
                xids |= dict.fromkeys(Xid(uuid, int(data.eventData)) for uuid in self._hit(data))
        return list(xids)

    def memory_limit(self, uuid: str, cgroup: str) -> MemoryLimit | None:
        self._start()
        try:
            return driver.memory_limit(self.nvml, self.nvml.nvmlDeviceGetHandleByUUID(uuid), cgroup)
        except self.nvml.NVMLError as error:
            raise SourceError(f"the driver does not tell the limit of {cgroup} ({error})") from error

    def close(self) -> None:
        if self._events is not None:
            with suppress(self.nvml.NVMLError):
                self.nvml.nvmlEventSetFree(self._events)
        if self.ready:
            with suppress(self.nvml.NVMLError):
                self.nvml.nvmlShutdown()
        self.ready, self._events, self._watched, self._uuids = False, None, set(), {}

    def _start(self) -> None:
        if self.ready:
            return
        try:
            self.nvml.nvmlInit()
        except (self.nvml.NVMLError_LibraryNotFound, self.nvml.NVMLError_DriverNotLoaded) as error:
            raise SourceError(f"no GPU can be read: the NVIDIA driver is not loaded ({error})") from error
        except self.nvml.NVMLError as error:
            raise SourceError(f"no GPU can be read: NVML does not start ({error})") from error
        self.ready = True

    def _handles(self) -> dict[int, tuple[str, Any]]:
        """UUID and handle by index, of the GPUs that still answer with their UUID."""
        found = {}
        for index in range(self.nvml.nvmlDeviceGetCount()):
            with suppress(self.nvml.NVMLError):
                handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
                found[index] = (self.nvml.nvmlDeviceGetUUID(handle), handle)
        return found

    def _gpu(self, index: int, uuid: str, handle: Any) -> Gpu:
        """The GPU; a field that cannot be read keeps its last value."""
        trouble = ""
        fields = dict(self._facts.get(uuid, {"mem_mib": 0, "minor": index}))
        for name, value in self._fields(handle):
            try:
                fields[name] = value()
            except self._unsupported:
                continue
            except self.nvml.NVMLError as error:
                trouble = trouble or f"nvml-{error}".lower().replace(" ", "-")
        pending = fields.pop("recovery", "")
        self._facts[uuid] = fields
        return Gpu(index=index, uuid=uuid, trouble=trouble or pending, **fields)

    def _fields(self, handle: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
        nvml = self.nvml
        yield "mem_mib", lambda: self._memory(handle)
        yield "minor", lambda: nvml.nvmlDeviceGetMinorNumber(handle)
        yield "model", lambda: nvml.nvmlDeviceGetName(handle)
        yield "clock_mhz", lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
        yield "cc", lambda: ".".join(map(str, nvml.nvmlDeviceGetCudaComputeCapability(handle)))
        yield "numa", lambda: _first_bit(nvml.nvmlDeviceGetMemoryAffinity(handle, 1, nvml.NVML_AFFINITY_SCOPE_NODE)[0])
        yield "pci", lambda: nvlink.bus_id(nvml.nvmlDeviceGetPciInfo(handle).busId)
        yield "mig", lambda: nvml.NVML_FEATURE_ENABLED in nvml.nvmlDeviceGetMigMode(handle)
        yield "recovery", lambda: self._recovery(handle)

    def _memory(self, handle: Any) -> int:
        try:
            memory = self.nvml.nvmlDeviceGetMemoryInfo(handle, version=self.nvml.nvmlMemory_v2)
            return int(memory.total - memory.reserved) // MIB
        except self._unsupported:
            return int(self.nvml.nvmlDeviceGetMemoryInfo(handle).total) // MIB

    def _recovery(self, handle: Any) -> str:
        """The recovery action that the driver asks for, "" if none (driver 565 and later)."""
        field = getattr(self.nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
        if field is None:
            return ""
        value = self.nvml.nvmlDeviceGetFieldValues(handle, [field])[0]
        if value.nvmlReturn != self.nvml.NVML_SUCCESS or value.value.uiVal == self.nvml.NVML_GPU_RECOVERY_ACTION_NONE:
            return ""
        return f"recovery-action-{value.value.uiVal}"

    def _fabric(self, handle: Any) -> Fabric | None:
        info = self.nvml.c_nvmlGpuFabricInfoV_t()
        try:
            self.nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        except self.nvml.NVMLError:
            return None
        cluster = bytes(info.clusterUuid)
        if info.state != self.nvml.NVML_GPU_FABRIC_STATE_COMPLETED or not any(cluster):
            return None
        return Fabric(cluster=cluster.hex(), clique=info.cliqueId)

    def _watch_events(self, handles: dict[int, tuple[str, Any]]) -> None:
        """Register for the critical errors of each GPU that supports such events."""
        try:
            if self._events is None:
                self._events = self.nvml.nvmlEventSetCreate()
        except self._unsupported:
            return
        self._uuids |= {_address(handle): uuid for uuid, handle in handles.values()}
        self._watched &= {uuid for uuid, _ in handles.values()}
        for uuid, handle in handles.values():
            if uuid not in self._watched:
                with suppress(self.nvml.NVMLError):
                    xid = self.nvml.nvmlEventTypeXidCriticalError
                    self.nvml.nvmlDeviceRegisterEvents(handle, xid, self._events)
                self._watched.add(uuid)

    def _wait(self, timeout: float) -> Any:
        """The next event; raises NVMLError if there is none, or if events are not supported."""
        if self._events is None:
            time.sleep(timeout)
            raise self.nvml.NVMLError_Timeout
        try:
            return self.nvml.nvmlEventSetWait_v2(self._events, int(timeout * 1000))
        except self.nvml.NVMLError as error:
            if not isinstance(error, self.nvml.NVMLError_Timeout):
                time.sleep(timeout)
            raise

    def _hit(self, data: Any) -> tuple[str, ...]:
        """The UUIDs that an event is about: that of a GPU, or those of MIG instances."""
        uuid = self._uuid(data.device)
        if self._instances is None:
            return (uuid,)
        return self._instances.hit(uuid, data.gpuInstanceId, data.computeInstanceId) or (uuid,)

    def _uuid(self, handle: Any) -> str:
        """The UUID of an event's GPU, "" if it is unknown."""
        try:
            return str(self.nvml.nvmlDeviceGetUUID(handle))
        except self.nvml.NVMLError:
            return self._uuids.get(_address(handle), "")


def _address(handle: Any) -> int:
    """The address that a handle points to; two handles of one GPU are different ctypes objects."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _first_bit(mask: int) -> int:
    return (mask & -mask).bit_length() - 1 if mask else NO_NUMA
