"""The MIG instances of real GPUs, read by NVML.

NVML numbers the devices of a GPU with holes, and a device may be destroyed between two calls. What is constant is read
once for each UUID. Sources: NVML API reference (Multi Instance GPU Management), NVIDIA/go-nvlib (names of profiles).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import structlog

from deviceplugin.machine import Gpu
from deviceplugin.mig import capabilities
from protos.contract import mig

log = structlog.get_logger()

MIB, GIB = 2**20, 2**30
EIGHTHS = 8
"""A profile's memory is told in eighths of the GPU's."""
MARK = " MIG "
"""In the name of a device, before its profile."""
ALL = 0xFFFFFFFF
"""The ID of an instance in an event that is not about one."""
SUFFIXES = {
    f"NVML_GPU_INSTANCE_PROFILE_{profile}": suffix
    for suffix, profiles in {
        "+me": ("1_SLICE_REV1", "2_SLICE_REV1"),
        "-me": ("1_SLICE_NO_ME", "2_SLICE_NO_ME"),
        "+me.all": ("1_SLICE_ALL_ME", "2_SLICE_ALL_ME"),
        "+gfx": ("1_SLICE_GFX", "2_SLICE_GFX", "4_SLICE_GFX"),
    }.items()
    for profile in profiles
}
"""The ends of the names of profiles that differ in more than slices and memory, by NVML's constant."""


class Instances:
    """The instances of all GPUs, as last read; `nvml` is the module pynvml, or a fake of it."""

    def __init__(self, nvml: Any, absent: tuple[type[Exception], ...]) -> None:
        """`absent` are the errors of a call that this driver lacks, and of a device that is not there."""
        self._nvml = nvml
        self._absent: tuple[type[Exception], ...] = (*absent, AttributeError)
        self._last: dict[str, tuple[Gpu, ...]] = {}
        """By UUID of the GPU."""
        self._refused: frozenset[str] = frozenset()
        """UUIDs of the devices that the last reading could not offer."""
        self._refusing: set[str] = set()
        """Those of this reading."""

    def read(self, gpus: Sequence[tuple[Gpu, Any]]) -> tuple[Gpu, ...]:
        """The instances of these GPUs, which come with their handles."""
        before, self._last = self._last, {}
        self._refused, self._refusing = frozenset(self._refusing), set()
        for gpu, handle in gpus:
            if gpu.mig:
                self._last[gpu.uuid] = self._of(gpu, handle, before.get(gpu.uuid, ()))
        return tuple(instance for found in self._last.values() for instance in found)

    def hit(self, uuid: str, gi: int, ci: int) -> tuple[str, ...]:
        """The UUIDs of the instances of a GPU that an event is about; none if it is about the GPU."""
        if gi == ALL:
            return ()
        own = (each for each in self._last.get(uuid, ()) if each.gi == gi)
        return tuple(each.uuid for each in own if ci in (ALL, each.ci))

    def _of(self, gpu: Gpu, handle: Any, before: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        """The instances of one GPU. While it fails, they are those from before, in trouble."""
        known = {each.uuid: each for each in before}
        found: dict[str, Gpu] = {}
        try:
            for place, uuid, device in self.devices(handle):
                if uuid in found or gpu.index >= mig.FIRST:
                    continue
                facts = known.get(uuid)
                if facts is None or facts.minor != gpu.minor:
                    facts = self._facts(gpu, handle, device, uuid)
                if facts is not None:
                    found[uuid] = _on(gpu, facts, mig.index(gpu.index, place))
        except self._nvml.NVMLError as error:
            trouble = f"nvml-{error}".lower().replace(" ", "-")
            return tuple(msgspec.structs.replace(each, trouble=trouble) for each in before)
        return tuple(found.values())

    def devices(self, handle: Any) -> Iterator[tuple[int, str, Any]]:
        """The MIG devices of a GPU: place, UUID and handle. Raises NVMLError."""
        for place in range(min(self._ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0, mig.PER_GPU)):
            device = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
            uuid = None if device is None else self._ask("nvmlDeviceGetUUID", device)
            if uuid is not None:
                yield place, str(uuid), device

    def _facts(self, gpu: Gpu, handle: Any, device: Any, uuid: str) -> Gpu | None:
        """What is constant of an instance; None if it is gone meanwhile, or cannot be offered."""
        attributes = self._ask("nvmlDeviceGetAttributes_v2", device)
        memory = int(attributes.memorySizeMB) if attributes else self._memory(device) // MIB
        gi = self._ask("nvmlDeviceGetGpuInstanceId", device)
        ci = self._ask("nvmlDeviceGetComputeInstanceId", device)
        name = self._profile(handle, device, attributes, gi)
        profile = mig.profile(name)
        if profile is None or not memory:
            self._refusing.add(uuid)
            if uuid not in self._refused:
                log.warning("mig_instance_not_offered", gpu=gpu.index, uuid=uuid, profile=name[:40], mem_mib=memory)
            return None
        return Gpu(
            index=mig.FIRST,
            uuid=uuid,
            minor=gpu.minor,
            mem_mib=memory,
            profile=profile.name,
            parent=gpu.uuid,
            gi=-1 if gi is None else gi,
            ci=-1 if ci is None else ci,
            nodes=() if gi is None or ci is None else capabilities.nodes(gpu.minor, gi, ci),
        )

    def _profile(self, handle: Any, device: Any, attributes: Any, gi: int | None) -> str:
        """The name of an instance's profile, "" if it is unknown."""
        name = str(self._ask("nvmlDeviceGetName", device) or "").rpartition(MARK)[2].strip()
        if mig.profile(name) is not None or attributes is None:
            return name
        total = self._memory(handle)
        own, all_of_it = int(attributes.computeInstanceSliceCount), int(attributes.gpuInstanceSliceCount)
        part = f"{own}c." if own != all_of_it else ""
        return f"{part}{all_of_it}g.{gigabytes(int(attributes.memorySizeMB), total)}gb{self._suffix(handle, gi)}"

    def _suffix(self, handle: Any, gi: int | None) -> str:
        """The end of the profile's name, "" for most profiles, or where the driver does not tell."""
        instance = None if gi is None else self._ask("nvmlDeviceGetGpuInstanceById", handle, gi)
        info = None if instance is None else self._ask("nvmlGpuInstanceGetInfo", instance)
        if info is None:
            return ""
        for constant, suffix in SUFFIXES.items():
            number = getattr(self._nvml, constant, None)
            found = None if number is None else self._ask("nvmlDeviceGetGpuInstanceProfileInfo", handle, number)
            if found is not None and found.id == info.profileId:
                return suffix
        return ""

    def _memory(self, handle: Any) -> int:
        """Bytes of a GPU or of an instance, 0 if unknown."""
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        return int(memory.total) if memory is not None else 0

    def _ask(self, name: str, *args: Any) -> Any:
        """What a call answers, None if there is no such call or no such device."""
        try:
            call: Callable[..., Any] = getattr(self._nvml, name)
            return call(*args)
        except self._absent:
            return None


def gigabytes(mib: int, total: int) -> int:
    """The memory in the name of a profile, of an instance with so many MiB on a GPU with so many bytes."""
    part = math.ceil(mib * MIB / total * EIGHTHS) / EIGHTHS if total else 0.0
    return math.floor(part * -(-total // GIB) + 0.5)


def _on(gpu: Gpu, facts: Gpu, index: int) -> Gpu:
    """The instance with the fields of its GPU that may change."""
    return msgspec.structs.replace(
        facts,
        index=index,
        model=gpu.model,
        clock_mhz=gpu.clock_mhz,
        cc=gpu.cc,
        numa=gpu.numa,
        pci=gpu.pci,
        trouble="",
    )
