"""A module that behaves like pynvml, for machines that a test makes up. Constants and errors are pynvml's own."""

from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 2**30


class Gpu:
    """One GPU; a field that holds an error raises it when it is read."""

    def __init__(self, index: int, **fields: Any) -> None:
        self.index = index
        self._as_parameter_ = 0x1000 + index  # a handle's address
        self.fields: dict[str, Any] = {
            "uuid": f"GPU-{index}",
            "memory": SimpleNamespace(total=80 * GIB, reserved=GIB, free=0, used=0),
            "memory_v1": SimpleNamespace(total=80 * GIB, free=0, used=0),
            "minor": index,
            "name": "NVIDIA A100-SXM4-80GB",
            "clock": 1410,
            "cc": (8, 0),
            "numa": [0b10],
            "bus": f"00000000:{index + 1:02X}:00.0",
            "mig": pynvml.NVMLError_NotSupported(),
            "recovery": 0,
            "fabric": pynvml.NVMLError_NotSupported(),
            "links": {},  # link → bus ID of the other end, or "switch"
            **fields,
        }

    def get(self, name: str) -> Any:
        value = self.fields[name]
        if isinstance(value, Exception):
            raise value
        return value


class FakeNvml:
    """The machine: GPUs, PCIe closeness by pair, and errors that poll has not returned yet."""

    def __init__(self, *gpus: Gpu, init: Exception | None = None) -> None:
        self.gpus, self.init = list(gpus), init
        self.closeness: dict[frozenset[int], int] = {}
        self.events: list[tuple[Gpu, int] | tuple[Gpu, int, int, int]] = []
        """With the IDs of GPU instance and compute instance, where the error is of a MIG instance."""
        self.registered: list[str] = []
        self.inits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def nvmlInit(self) -> None:
        self.inits += 1
        if self.init:
            raise self.init

    def nvmlShutdown(self) -> None:
        return

    def nvmlDeviceGetCount(self) -> int:
        if self.init:
            raise self.init
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu: Gpu) -> Any:
        return gpu.get("uuid")

    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu, version: int | None = None) -> Any:
        return gpu.get("memory" if version else "memory_v1")

    def nvmlDeviceGetMinorNumber(self, gpu: Gpu) -> Any:
        return gpu.get("minor")

    def nvmlDeviceGetName(self, gpu: Gpu) -> Any:
        return gpu.get("name")

    def nvmlDeviceGetMaxClockInfo(self, gpu: Gpu, clock: int) -> Any:
        assert clock == pynvml.NVML_CLOCK_SM
        return gpu.get("clock")

    def nvmlDeviceGetCudaComputeCapability(self, gpu: Gpu) -> Any:
        return gpu.get("cc")

    def nvmlDeviceGetMemoryAffinity(self, gpu: Gpu, size: int, scope: int) -> Any:
        return gpu.get("numa")

    def nvmlDeviceGetPciInfo(self, gpu: Gpu) -> Any:
        return SimpleNamespace(busId=gpu.get("bus"))

    def nvmlDeviceGetMigMode(self, gpu: Gpu) -> Any:
        return gpu.get("mig")

    def nvmlDeviceGetFieldValues(self, gpu: Gpu, fields: list[int]) -> Any:
        assert fields == [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        value = SimpleNamespace(uiVal=gpu.get("recovery"))
        return [SimpleNamespace(nvmlReturn=pynvml.NVML_SUCCESS, value=value)]

    def nvmlDeviceGetGpuFabricInfoV(self, gpu: Gpu, reference: Any) -> None:
        fabric = gpu.get("fabric")
        info = reference._obj
        info.state, info.cliqueId = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, fabric[1]
        for i, byte in enumerate(fabric[0]):
            info.clusterUuid[i] = byte

    def nvmlDeviceGetNvLinkState(self, gpu: Gpu, link: int) -> int:
        if not gpu.get("links"):
            raise pynvml.NVMLError_NotSupported
        return 1 if link in gpu.get("links") else 0

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: Gpu, link: int) -> int:
        kind = pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH if gpu.get("links")[link] == "switch" else 0
        return int(kind)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: Gpu, link: int) -> Any:
        other = gpu.get("links")[link]
        return SimpleNamespace(busId="00000000:C4:00.0" if other == "switch" else other)

    def nvmlDeviceGetTopologyCommonAncestor(self, a: Gpu, b: Gpu) -> int:
        return self.closeness.get(frozenset((a.index, b.index)), int(pynvml.NVML_TOPOLOGY_SYSTEM))

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlEventSetFree(self, events: object) -> None:
        return

    def nvmlDeviceRegisterEvents(self, gpu: Gpu, kinds: int, events: object) -> None:
        gpu.get("clock")
        self.registered.append(gpu.get("uuid"))

    def nvmlEventSetWait_v2(self, events: object, timeout: int) -> Any:
        if not self.events:
            raise pynvml.NVMLError_Timeout
        gpu, code, *ids = self.events.pop(0)
        gi, ci = ids or (0xFFFFFFFF, 0xFFFFFFFF)
        kind = pynvml.nvmlEventTypeXidCriticalError
        return SimpleNamespace(device=gpu, eventType=kind, eventData=code, gpuInstanceId=gi, computeInstanceId=ci)
