"""The calls by which MIG instances are made, of a module that behaves like pynvml. Handles and arrays are ctypes' own.

Sources: NVML API reference, Multi Instance GPU Management; the profiles and places of an A100 80GB from NVIDIA's MIG
User Guide.
"""

import ctypes
from types import SimpleNamespace
from typing import Any, NamedTuple

import pynvml

from tests.unit.deviceplugin.fake_mig import Device, MigNvml
from tests.unit.deviceplugin.fake_nvml import Gpu


class Profile(NamedTuple):
    """A profile by the driver's number; the name is "" where the driver tells none."""

    id: int
    slices: int
    memory_mib: int
    size: int
    starts: tuple[int, ...]
    most: int
    name: str = ""


A100 = {
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE: Profile(19, 1, 9728, 1, tuple(range(7)), 7, "MIG 1g.10gb"),
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1: Profile(20, 1, 9728, 1, tuple(range(7)), 1),
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE: Profile(14, 2, 19968, 2, (0, 2, 4), 3),
    pynvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE: Profile(9, 3, 40192, 4, (0, 4), 2),
    pynvml.NVML_GPU_INSTANCE_PROFILE_7_SLICE: Profile(0, 7, 80896, 8, (0,), 1),
}
COMPUTE = {
    pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE: SimpleNamespace(id=0, sliceCount=1),
    pynvml.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE: SimpleNamespace(id=2, sliceCount=3),
}


class _Instance:
    def __init__(self, gpu: Gpu, profile: int, start: int, size: int) -> None:
        self.gpu, self.profile, self.start, self.size = gpu, profile, start, size
        self.parts: list[int] = []
        """The number of the profile of each compute instance."""


class CutNvml(MigNvml):
    """`fails` has the error that a call raises, by its name."""

    def __init__(self, *gpus: Gpu, lacking: frozenset[str] = frozenset()) -> None:
        super().__init__(*gpus, lacking=lacking)
        self.made: dict[int, _Instance] = {}
        """By ID, which is also the address of the handle."""
        self.fails: dict[str, Exception] = {}
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise self.fails[name]

    def nvmlDeviceGetIndex(self, gpu: Gpu) -> int:
        return gpu.index

    def nvmlDeviceGetGpuInstanceProfileInfo(self, gpu: Gpu, constant: int, version: int = 2) -> Any:
        self._call("profile")
        profile = A100.get(constant)
        if profile is None:
            raise pynvml.NVMLError_NotSupported
        told = {"id": profile.id, "sliceCount": profile.slices, "instanceCount": profile.most}
        return SimpleNamespace(**told, memorySizeMB=profile.memory_mib, name=profile.name.encode())

    def nvmlDeviceGetGpuInstancePossiblePlacements(self, gpu: Gpu, number: int, found: Any, count: Any) -> int:
        profile = self._profile(number)
        for at, start in enumerate(profile.starts):
            found[at] = pynvml.c_nvmlGpuInstancePlacement_t(start, profile.size)
        count._obj.value = len(profile.starts)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, gpu: Gpu, number: int, where: Any) -> Any:
        self._call("make")
        place = where._obj
        profile, id_ = self._profile(number), 1 + max(self.made, default=0)
        assert (place.size, place.start in profile.starts) == (profile.size, True)
        self.made[id_] = _Instance(gpu, number, place.start, place.size)
        return _handle(id_, pynvml.c_nvmlGpuInstance_t)

    def nvmlGpuInstanceGetInfo(self, device: Any) -> Any:
        id_ = _id(device)
        made = self.made[id_]
        where = pynvml.c_nvmlGpuInstancePlacement_t(made.start, made.size)
        return SimpleNamespace(id=id_, profileId=made.profile, placement=where)

    def nvmlDeviceGetGpuInstances(self, gpu: Gpu, number: int, found: Any, count: Any) -> int:
        self._call("list")
        here = [id_ for id_, made in self.made.items() if made.gpu is gpu and made.profile == number]
        for at, id_ in enumerate(here):
            found[at] = _handle(id_, pynvml.c_nvmlGpuInstance_t)
        count._obj.value = len(here)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetGpuInstanceById(self, gpu: Gpu, gi: int) -> Any:
        if gi not in self.made:
            raise pynvml.NVMLError_NotFound
        return _handle(gi, pynvml.c_nvmlGpuInstance_t)

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(
        self, instance: Any, constant: int, engines: int, version: int = 2
    ) -> Any:
        assert engines == pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
        info = COMPUTE.get(constant)
        if info is None or info.sliceCount > self._profile(self.made[_id(instance)].profile).slices:
            raise pynvml.NVMLError_NotSupported
        return info

    def nvmlGpuInstanceCreateComputeInstance(self, instance: Any, number: int) -> Any:
        self._call("complete")
        id_ = _id(instance)
        made = self.made[id_]
        made.parts.append(number)
        made.gpu.fields["devices"].append(Device(f"MIG-{id_}", gi=id_, ci=len(made.parts) - 1))
        return _handle(100 * id_ + len(made.parts), pynvml.c_nvmlComputeInstance_t)

    def nvmlGpuInstanceGetComputeInstances(self, instance: Any, number: int, found: Any, count: Any) -> int:
        id_ = _id(instance)
        here = [at for at, part in enumerate(self.made[id_].parts, 1) if part == number]
        for at, part in enumerate(here):
            found[at] = _handle(100 * id_ + part, pynvml.c_nvmlComputeInstance_t)
        count._obj.value = len(here)
        return int(pynvml.NVML_SUCCESS)

    def nvmlComputeInstanceDestroy(self, part: Any) -> int:
        self._call("destroy part")
        made = self.made[_id(part) // 100]
        del made.parts[-1]
        devices = made.gpu.fields["devices"]
        made.gpu.fields["devices"] = [each for each in devices if each.fields["gi"] != _id(part) // 100]
        return int(pynvml.NVML_SUCCESS)

    def nvmlGpuInstanceDestroy(self, instance: Any) -> int:
        self._call("destroy")
        if self.made[_id(instance)].parts:
            raise pynvml.NVMLError_InUse
        del self.made[_id(instance)]
        return int(pynvml.NVML_SUCCESS)

    def _profile(self, number: int) -> Profile:
        return next(profile for profile in A100.values() if profile.id == number)


def _handle(address: int, kind: Any) -> Any:
    return ctypes.cast(ctypes.c_void_p(address), kind)


def _id(handle: Any) -> int:
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)
