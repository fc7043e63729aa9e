"""Real GPUs, read by NVML (nvidia-ml-py).

Initialisation is tried again at every reading, so a driver that comes later is noticed. A getter that this driver or
GPU does not support costs only its own field. Source: NVML API reference, docs.nvidia.com/deploy/nvml-api.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import combinations
from typing import Any, TypeVar

from deviceplugin.machine import Gpu, Machine, SourceError, Xid
from protos.contract.inventory import Fabric, Link

T = TypeVar("T")
MIB = 2**20
PERIOD_S = 15.0
NO_NUMA = -1


class NvmlSource:
    """The GPUs that the NVIDIA driver shows; `nvml` is the module pynvml, or one that behaves like it."""

    period = PERIOD_S

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self.ready = False
        self._events: Any = None
        self._watched: set[str] = set()
        self._unsupported = (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_NoPermission,
            nvml.NVMLError_InvalidArgument,
        )

    def read(self) -> Machine:
        self._start()
        try:
            handles = self._handles()
            gpus = tuple(self._gpu(index, uuid, handle) for index, (uuid, handle) in handles.items())
            self._watch_events(handles)
            links = _Links(self, [(gpu, handles[gpu.index][1]) for gpu in gpus]).all()
            fabric = next((found for _, handle in handles.values() if (found := self._fabric(handle))), None)
        except self.nvml.NVMLError as error:
            self.close()
            raise SourceError(f"NVML does not answer ({error})") from error
        return Machine(gpus=gpus, links=links, fabric=fabric)

    def poll(self, timeout: float) -> list[Xid]:
        if self._events is None:
            time.sleep(timeout)
            return []
        try:
            data = self.nvml.nvmlEventSetWait_v2(self._events, int(timeout * 1000))
        except self.nvml.NVMLError_Timeout:
            return []
        except self.nvml.NVMLError:
            time.sleep(timeout)
            return []
        if data.eventType != self.nvml.nvmlEventTypeXidCriticalError:
            return []
        return [Xid(self.get("", self.nvml.nvmlDeviceGetUUID, data.device), int(data.eventData))]

    def close(self) -> None:
        if self._events is not None:
            with suppress(self.nvml.NVMLError):
                self.nvml.nvmlEventSetFree(self._events)
        if self.ready:
            with suppress(self.nvml.NVMLError):
                self.nvml.nvmlShutdown()
        self.ready, self._events, self._watched = False, None, set()

    def get(self, default: T, getter: Callable[..., Any], *args: Any) -> T | Any:
        """What the getter says, or `default` where this driver or GPU does not support it."""
        try:
            return getter(*args)
        except self._unsupported:
            return default

    def _start(self) -> None:
        if self.ready:
            return
        try:
            self.nvml.nvmlInit()
        except (self.nvml.NVMLError_LibraryNotFound, self.nvml.NVMLError_DriverNotLoaded) as error:
            raise SourceError(f"no GPU can be seen: the NVIDIA driver is not there ({error})") from error
        except self.nvml.NVMLError as error:
            raise SourceError(f"no GPU can be seen: NVML does not start ({error})") from error
        self.ready = True

    def _handles(self) -> dict[int, tuple[str, Any]]:
        """UUID and handle by index, of the GPUs that still answer to their name."""
        found = {}
        for index in range(self.nvml.nvmlDeviceGetCount()):
            with suppress(self.nvml.NVMLError):
                handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
                found[index] = (self.nvml.nvmlDeviceGetUUID(handle), handle)
        return found

    def _gpu(self, index: int, uuid: str, handle: Any) -> Gpu:
        trouble = ""
        fields: dict[str, Any] = {"mem_mib": 0, "minor": index}
        for name, value in self._fields(handle):
            try:
                fields[name] = value()
            except self._unsupported:
                continue
            except self.nvml.NVMLError as error:
                trouble = trouble or f"nvml-{error}".lower().replace(" ", "-")
        pending = fields.pop("recovery", "")
        return Gpu(index=index, uuid=uuid, trouble=trouble or pending, **fields)

    def _fields(self, handle: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
        nvml = self.nvml
        yield "mem_mib", lambda: self._memory(handle)
        yield "minor", lambda: nvml.nvmlDeviceGetMinorNumber(handle)
        yield "model", lambda: nvml.nvmlDeviceGetName(handle)
        yield "clock_mhz", lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
        yield "cc", lambda: ".".join(map(str, nvml.nvmlDeviceGetCudaComputeCapability(handle)))
        yield "numa", lambda: _first_bit(nvml.nvmlDeviceGetMemoryAffinity(handle, 1, nvml.NVML_AFFINITY_SCOPE_NODE)[0])
        yield "pci", lambda: bus_id(nvml.nvmlDeviceGetPciInfo(handle).busId)
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
        try:
            info = self.nvml.c_nvmlGpuFabricInfo_t()
            self.nvml.nvmlDeviceGetGpuFabricInfo(handle, info)
        except (*self._unsupported, AttributeError):
            return None
        cluster = bytes(info.clusterUuid)
        if info.state != self.nvml.NVML_GPU_FABRIC_STATE_COMPLETED or not any(cluster):
            return None
        return Fabric(cluster=cluster.hex(), clique=info.cliqueId)

    def _watch_events(self, handles: dict[int, tuple[str, Any]]) -> None:
        """Listen to the critical errors of each GPU that has such events."""
        try:
            if self._events is None:
                self._events = self.nvml.nvmlEventSetCreate()
        except self._unsupported:
            return
        for uuid, handle in handles.values():
            if uuid not in self._watched:
                with suppress(self.nvml.NVMLError):
                    xid = self.nvml.nvmlEventTypeXidCriticalError
                    self.nvml.nvmlDeviceRegisterEvents(handle, xid, self._events)
                self._watched.add(uuid)


class _Links:
    """How each two GPUs are linked: NVLinks (direct, or through switches as a full mesh), else PCIe closeness."""

    def __init__(self, source: NvmlSource, gpus: list[tuple[Gpu, Any]]) -> None:
        self.source, self.nvml, self.gpus = source, source.nvml, gpus
        self.by_bus = {gpu.pci: gpu.index for gpu, _ in gpus if gpu.pci}
        self.switched: dict[int, int] = {}
        self.direct: dict[tuple[int, int], int] = {}
        nvml = source.nvml
        self.pcie = {
            nvml.NVML_TOPOLOGY_INTERNAL: "PIX",
            nvml.NVML_TOPOLOGY_SINGLE: "PIX",
            nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
            nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
            nvml.NVML_TOPOLOGY_NODE: "NODE",
            nvml.NVML_TOPOLOGY_SYSTEM: "SYS",
        }

    def all(self) -> tuple[Link, ...]:
        if len(self.gpus) < 2:
            return ()
        for gpu, handle in self.gpus:
            for link in range(self.nvml.NVML_NVLINK_MAX_LINKS):
                self._count(gpu.index, handle, link)
        kinds = ((a.index, b.index, self._kind(a, ha, b, hb)) for (a, ha), (b, hb) in combinations(self.gpus, 2))
        return tuple((a, b, kind) for a, b, kind in kinds if kind)

    def _count(self, index: int, handle: Any, link: int) -> None:
        nvml, get = self.nvml, self.source.get
        try:
            if get(None, nvml.nvmlDeviceGetNvLinkState, handle, link) != nvml.NVML_FEATURE_ENABLED:
                return
            kind = get(None, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
            remote = get(None, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        except nvml.NVMLError:
            return
        peer = self.by_bus.get(bus_id(remote.busId)) if remote is not None else None
        if peer is not None and peer != index:
            self.direct[index, peer] = self.direct.get((index, peer), 0) + 1
        elif kind in (None, nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH):
            self.switched[index] = self.switched.get(index, 0) + 1

    def _kind(self, a: Gpu, handle_a: Any, b: Gpu, handle_b: Any) -> str:
        pair = (a.index, b.index)
        links = max(self.direct.get(pair, 0), self.direct.get(pair[::-1], 0))
        links += min(self.switched.get(a.index, 0), self.switched.get(b.index, 0))
        if links:
            return f"NV{links}"
        try:
            return self.pcie.get(self.nvml.nvmlDeviceGetTopologyCommonAncestor(handle_a, handle_b), "")
        except self.nvml.NVMLError:
            return ""


def bus_id(raw: str | bytes) -> str:
    """A PCI bus ID as Linux writes it: `0000:07:00.0`, where NVML says `00000000:07:00.0`."""
    text = (raw.decode() if isinstance(raw, bytes) else raw).lower()
    domain, _, rest = text.partition(":")
    return f"{domain[-4:]}:{rest}"


def _first_bit(mask: int) -> int:
    return (mask & -mask).bit_length() - 1 if mask else NO_NUMA
