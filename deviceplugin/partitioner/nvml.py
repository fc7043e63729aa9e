"""NVIDIA's driver as the partitioner uses it. Source: NVML API reference, Multi Instance GPU Management."""

import ctypes
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from deviceplugin.machine import SourceError
from deviceplugin.mig.instances import SUFFIXES, Instances, gigabytes
from deviceplugin.nvml import NvmlSource
from deviceplugin.partitioner.partitioner import Found, chosen
from deviceplugin.partitioner.protocol import Device, Kind, PartitionError
from protos.contract import mig

NAMED = "MIG "
"""Before the profile in the name that the driver tells."""
MOST = 16
"""Places, or instances of one profile, that are read."""


class NvmlDriver:
    """Instances through NVML; `nvml` is the module pynvml, or a fake of it."""

    def __init__(self, nvml: Any, given: Collection[str]) -> None:
        """`given`: the GPUs that are given over, by UUID or index, or `all`."""
        self._nvml, self._source, self._given = nvml, NvmlSource(nvml), frozenset(given)
        absent = (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument, nvml.NVMLError_NotFound)
        self._absent: tuple[type[Exception], ...] = (*absent, nvml.NVMLError_FunctionNotFound, AttributeError)
        self._devices = Instances(nvml, absent)
        self._profiles: dict[str, dict[int, Kind]] = {}
        """By GPU and the driver's number of the profile: what the GPU can have. It never changes."""

    def gpus(self) -> Mapping[str, tuple[Kind, ...]]:
        """The GPUs in MIG mode that are given over, by UUID, and what can be made of each if it is empty."""
        found = {}
        for uuid, handle in self._handles().items():
            index = self._ask("nvmlDeviceGetIndex", handle)
            if index is not None and chosen(self._given, index, uuid) and self._in_mig_mode(handle):
                found[uuid] = tuple(self._kinds(uuid, handle).values())
        return found

    def found(self, gpu: str) -> list[Found]:
        """All instances of a GPU."""
        handle = self._handle(gpu)
        devices = dict(self._named(handle))
        found = []
        for number, kind in self._kinds(gpu, handle).items():
            for info in self._instances(handle, number):
                place = mig.Place(gpu, kind.profile, int(info.placement.start), int(info.placement.size))
                found.append(Found(place, int(info.id), devices.get(int(info.id))))
        return found

    def make(self, place: mig.Place) -> int:
        """Make a GPU instance at this place; returns its ID."""
        handle = self._handle(place.gpu)
        number = next(n for n, kind in self._kinds(place.gpu, handle).items() if kind.profile == place.profile)
        where = self._nvml.c_nvmlGpuInstancePlacement_t(place.start, place.size)
        call = "nvmlDeviceCreateGpuInstanceWithPlacement"
        made = self._do(f"make {place.name}", call, handle, number, ctypes.byref(where))
        return int(self._do(f"tell the ID of {place.name}", "nvmlGpuInstanceGetInfo", made).id)

    def complete(self, place: mig.Place, gi: int) -> Device:
        """Make the compute instance of a GPU instance, over all of it."""
        handle, what = self._handle(place.gpu), f"make the compute instance of {place.name}"
        instance = self._do(what, "nvmlDeviceGetGpuInstanceById", handle, gi)
        self._do(what, "nvmlGpuInstanceCreateComputeInstance", instance, self._whole(instance, place))
        device = dict(self._named(handle)).get(gi)
        if device is None:
            raise PartitionError(f"the driver does not show the device of {place.name}")
        return device

    def destroy(self, gpu: str, gi: int) -> None:
        """Destroy a GPU instance with its compute instances."""
        handle, what = self._handle(gpu), f"destroy instance {gi} of {gpu}"
        instance = self._do(what, "nvmlDeviceGetGpuInstanceById", handle, gi)
        for number, _ in self._parts(instance):
            for part in self._several(f"{what}: list", "nvmlGpuInstanceGetComputeInstances", instance, number, True):
                self._do(what, "nvmlComputeInstanceDestroy", part)
        self._do(what, "nvmlGpuInstanceDestroy", instance)

    def _kinds(self, gpu: str, handle: Any) -> Mapping[int, Kind]:
        known = self._profiles.get(gpu)
        if known is None:
            total = int(self._do(f"tell the memory of {gpu}", "nvmlDeviceGetMemoryInfo", handle).total)
            known = self._profiles[gpu] = dict(self._read_kinds(handle, total))
        return known

    def _read_kinds(self, handle: Any, total: int) -> Iterator[tuple[int, Kind]]:
        for constant in range(getattr(self._nvml, "NVML_GPU_INSTANCE_PROFILE_COUNT", 0)):
            info = self._ask("nvmlDeviceGetGpuInstanceProfileInfo", handle, constant)
            name = self._name(info, constant, total) if info is not None else ""
            places = self._places(handle, info.id) if name else []
            if places:
                starts, most = sorted(start for start, _ in places), min(int(info.instanceCount), mig.MEMORY_SLICES)
                yield int(info.id), Kind(name, int(info.memorySizeMB), places[0][1], tuple(starts), max(1, most))

    def _name(self, info: Any, constant: int, total: int) -> str:
        """The name of a profile, as the driver writes it, or as it follows from what it is; "" for an unknown one."""
        told = getattr(info, "name", b"")
        text = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
        found = mig.profile(text.strip().removeprefix(NAMED))
        if found is None:
            known = {getattr(self._nvml, name, None): suffix for name, suffix in SUFFIXES.items()}
            memory = gigabytes(int(info.memorySizeMB), total)
            found = mig.profile(f"{int(info.sliceCount)}g.{memory}gb{known.get(constant, '')}")
        return found.name if found is not None else ""

    def _places(self, handle: Any, number: int) -> list[tuple[int, int]]:
        """Start and size of each place of a profile, none where the driver does not tell them."""
        count = ctypes.c_uint(MOST)
        found = (self._nvml.c_nvmlGpuInstancePlacement_t * MOST)()
        if self._ask("nvmlDeviceGetGpuInstancePossiblePlacements", handle, number, found, ctypes.byref(count)) is None:
            return []
        every = [(int(each.start), int(each.size)) for each in found[: min(count.value, MOST)]]
        return [(start, size) for start, size in every if size > 0 and start + size <= mig.MEMORY_SLICES]

    def _instances(self, handle: Any, number: int) -> Iterator[Any]:
        for instance in self._several("list instances", "nvmlDeviceGetGpuInstances", handle, number, False):
            yield self._do("tell about an instance", "nvmlGpuInstanceGetInfo", instance)

    def _several(self, what: str, name: str, of: Any, number: int, compute: bool) -> list[Any]:
        """The handles that a call writes into an array."""
        nvml = self._nvml
        kind = nvml.c_nvmlComputeInstance_t if compute else nvml.c_nvmlGpuInstance_t
        count, found = ctypes.c_uint(MOST), (kind * MOST)()
        self._do(what, name, of, number, found, ctypes.byref(count))
        return list(found[: min(count.value, MOST)])

    def _parts(self, instance: Any) -> Iterator[tuple[int, int]]:
        """The driver's number, and the compute slices, of each profile of compute instances."""
        nvml = self._nvml
        for constant in range(getattr(nvml, "NVML_COMPUTE_INSTANCE_PROFILE_COUNT", 0)):
            shared = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
            info = self._ask("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, constant, shared)
            if info is not None:
                yield int(info.id), int(info.sliceCount)

    def _whole(self, instance: Any, place: mig.Place) -> int:
        """The number of the profile of a compute instance that has all slices."""
        parts = list(self._parts(instance))
        if not parts:
            raise PartitionError(f"the driver tells no compute instances of {place.name}")
        return max(parts, key=lambda part: part[1])[0]

    def _named(self, handle: Any) -> Iterator[tuple[int, Device]]:
        """The MIG devices of a GPU by ID of their GPU instance."""
        try:
            for _, uuid, device in self._devices.devices(handle):
                gi = self._ask("nvmlDeviceGetGpuInstanceId", device)
                ci = self._ask("nvmlDeviceGetComputeInstanceId", device)
                if gi is not None and ci is not None:
                    yield int(gi), Device(uuid, int(gi), int(ci))
        except self._nvml.NVMLError as error:
            raise PartitionError(f"the driver does not list MIG devices ({error})") from error

    def _in_mig_mode(self, handle: Any) -> bool:
        mode = self._ask("nvmlDeviceGetMigMode", handle)
        return mode is not None and mode[0] == self._nvml.NVML_FEATURE_ENABLED

    def _handle(self, gpu: str) -> Any:
        handle = self._handles().get(gpu)
        if handle is None:
            raise PartitionError(f"this machine has no GPU {gpu}")
        return handle

    def _handles(self) -> dict[str, Any]:
        try:
            return self._source.handles()
        except SourceError as error:
            raise PartitionError(str(error)) from error

    def _ask(self, name: str, *args: Any) -> Any:
        """What a call answers, None if there is no such call or no such thing; raises PartitionError."""
        try:
            return getattr(self._nvml, name)(*args)
        except self._absent:
            return None
        except self._nvml.NVMLError as error:
            raise PartitionError(f"the driver does not answer {name} ({error})") from error

    def _do(self, what: str, name: str, *args: Any) -> Any:
        """The same of a call that must be there; `what` it is for goes into the error."""
        nvml = self._nvml
        try:
            return getattr(nvml, name)(*args)
        except nvml.NVMLError_NoPermission as error:
            raise PartitionError(f"the partitioner may not {what}: it needs root and SYS_ADMIN") from error
        except AttributeError as error:
            raise PartitionError(f"the driver cannot {what}: it lacks {name}") from error
        except nvml.NVMLError as error:
            raise PartitionError(f"the driver does not {what} ({error})") from error
