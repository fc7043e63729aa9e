"""The MIG calls of a module that behaves like pynvml, unkind answers included."""

from types import SimpleNamespace
from typing import Any

import pynvml

from tests.unit.deviceplugin.fake_nvml import GIB, FakeNvml, Gpu

ON, OFF = [1, 1], [0, 0]
MOST = 7
"""Instances of an A100 or H100."""


class Device:
    """One MIG device; a field that holds an error raises it when it is read."""

    def __init__(self, uuid: str, profile: str = "1g.10gb", *, gi: int = 1, ci: int = 0, **fields: Any) -> None:
        slices = int(profile.partition("g.")[0].rpartition("c.")[2])
        memory = int(profile.partition("g.")[2].partition("gb")[0]) * 1024 - 512
        own = int(profile.partition("c.")[0]) if "c." in profile else slices
        attributes = SimpleNamespace(
            gpuInstanceSliceCount=slices, computeInstanceSliceCount=own, memorySizeMB=memory, multiprocessorCount=14
        )
        self.fields: dict[str, Any] = {
            "uuid": uuid,
            "name": f"NVIDIA A100-SXM4-80GB MIG {profile}",
            "attributes": attributes,
            "memory_v1": SimpleNamespace(total=memory * 2**20),
            "gi": gi,
            "ci": ci,
            "profile_id": 19,
            "processes": [],
            **fields,
        }
        self.reads = 0
        """How often something constant of it was read."""

    def get(self, name: str) -> Any:
        value = self.fields[name]
        if isinstance(value, Exception):
            raise value
        return value


def a_gpu(index: int = 0, *devices: Device | None, **fields: Any) -> Gpu:
    """A GPU in MIG mode; None is a place without a device."""
    memory = SimpleNamespace(total=80 * GIB, reserved=GIB)
    return Gpu(index, **{"mig": ON, "devices": list(devices), "count": MOST, "memory": memory, **fields})


class MigNvml(FakeNvml):
    """A machine with GPUs in MIG mode. `lacking` are calls that its driver does not have."""

    def __init__(self, *gpus: Gpu, lacking: frozenset[str] = frozenset()) -> None:
        super().__init__(*gpus)
        self.lacking = lacking

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "lacking"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        if name in object.__getattribute__(self, "lacking"):
            raise AttributeError(name)
        return getattr(pynvml, name)

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: Gpu) -> int:
        count: int = gpu.get("count")
        return count

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, index: int) -> Device:
        devices = gpu.get("devices")
        if index >= len(devices) or devices[index] is None:
            raise pynvml.NVMLError_NotFound
        device: Device = devices[index]
        return device

    def nvmlDeviceGetAttributes_v2(self, device: Device) -> Any:
        device.reads += 1
        return device.get("attributes")

    def nvmlDeviceGetGpuInstanceId(self, device: Device) -> Any:
        return device.get("gi")

    def nvmlDeviceGetComputeInstanceId(self, device: Device) -> Any:
        return device.get("ci")

    def nvmlDeviceGetGpuInstanceById(self, gpu: Gpu, gi: int) -> Device:
        devices: list[Device] = [each for each in gpu.get("devices") if each is not None]
        return next(each for each in devices if each.fields["gi"] == gi)

    def nvmlGpuInstanceGetInfo(self, device: Device) -> Any:
        return SimpleNamespace(profileId=device.get("profile_id"))

    def nvmlDeviceGetGpuInstanceProfileInfo(self, _gpu: Gpu, profile: int) -> Any:
        if profile == pynvml.NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX:
            raise pynvml.NVMLError_NotSupported
        return SimpleNamespace(id=100 + profile)
