"""MIG instances as GPUs of the inventory: their profiles, indexes and resource names.

An instance is an entry of the inventory beside its GPU, which is in MIG mode and takes no pods. A pod gets an instance
as a whole. Source: NVIDIA Multi-Instance GPU User Guide (profile names), NVIDIA/k8s-device-plugin (resource names).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from protos.contract.bounds import MIG_PROFILE

PREFIX = "nvidia.com/mig-"
"""Of the resources that NVIDIA's plugin serves in its strategy `mixed`; the profile follows."""
SHOWN = 40
"""Characters of a name that a message shows."""
SLICES = 7
"""Compute slices of a GPU; an A30 has four, and its instances count by this number as well."""
PER_GPU = 16
"""Instances of one GPU that have an index; GPUs in use have at most seven."""
FIRST = 256
"""The index of the first instance of GPU 0: GPUs themselves have smaller ones."""
ON_DEMAND = FIRST + FIRST * PER_GPU
"""The index of the first possible instance of GPU 0; those of existing ones are below."""
CUT_GPUS, MEMORY_SLICES, ALIKE = 32, 8, 16
"""GPUs of a node that can be cut on demand; memory slices of a GPU; profiles of one place and size."""
KNOWN = (
    "1g.5gb", "1g.5gb+me", "1g.6gb", "1g.6gb+me", "1g.10gb", "1g.10gb+me", "1g.12gb", "1g.12gb+me", "1g.12gb+gfx",
    "1g.12gb+me.all", "1g.12gb-me", "1g.18gb", "1g.18gb+me", "1g.20gb", "1g.23gb", "1g.23gb+me", "1g.24gb",
    "1g.24gb+me", "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me", "1g.35gb", "1g.35gb+me", "1g.36gb", "1g.45gb",
    "1g.47gb", "1g.70gb", "2g.10gb", "2g.12gb", "2g.12gb+me", "2g.20gb", "2g.24gb", "2g.24gb+gfx", "2g.24gb+me.all",
    "2g.24gb-me", "2g.35gb", "2g.36gb", "2g.45gb", "2g.47gb", "2g.48gb", "2g.48gb+gfx", "2g.48gb+me.all",
    "2g.48gb-me", "2g.70gb", "3g.20gb", "3g.40gb", "3g.47gb", "3g.48gb", "3g.71gb", "3g.72gb", "3g.90gb", "3g.93gb",
    "3g.95gb", "3g.139gb", "4g.20gb", "4g.24gb", "4g.40gb", "4g.47gb", "4g.48gb", "4g.48gb+gfx", "4g.71gb", "4g.72gb",
    "4g.90gb", "4g.93gb", "4g.95gb", "4g.96gb", "4g.96gb+gfx", "4g.139gb", "7g.40gb", "7g.80gb", "7g.94gb", "7g.96gb",
    "7g.141gb", "7g.144gb", "7g.180gb", "7g.186gb", "7g.189gb", "7g.278gb",
)  # fmt: skip
"""GPU instances of A30, A100, H100, H200, H20, GH200, B200, GB200, GB300, RTX PRO 5000 and 6000. Sources: NVIDIA
Multi-Instance GPU User Guide, the default configuration of mig-parted."""

_PROFILE = re.compile(
    r"(?:(?P<compute>[1-7])c\.)?(?P<slices>[1-7])g\.(?P<memory>[0-9]{1,4})gb(?:[+.-][a-z0-9.+-]{1,19})?"
)

_PLACE = re.compile(r"(?P<gpu>[^/]{1,128})/(?P<profile>[^/@]{1,32})@(?P<start>[0-7]):(?P<size>[1-8])")
EXPECTED = f"a GPU below {CUT_GPUS}, memory slices below {MEMORY_SLICES}, and {ALIKE} profiles of one place and size"


class Profile(msgspec.Struct, frozen=True):
    """What a profile's name says."""

    name: str
    """As the driver writes it: `1g.10gb`, `1c.3g.40gb`, `1g.10gb+me`."""
    slices: int
    """Compute slices, of seven."""
    memory_gb: int

    @property
    def resource(self) -> str:
        """The name of its resource, in which `+` is `.`."""
        return PREFIX + self.name.replace("+", ".")


@lru_cache(maxsize=256)
def profile(name: str) -> Profile | None:
    """The profile of this name, as the driver or a resource writes it; None if it is none."""
    found = _PROFILE.fullmatch(name) if len(name) <= MIG_PROFILE.most else None
    if found is None:
        return None
    memory = int(found["memory"])
    head, gb, tail = name.partition("gb")
    written = f"{head}{gb}+{tail[1:]}" if tail.startswith(".") else name
    return Profile(written, int(found["compute"] or found["slices"]), memory)


def of_resource(resource: str) -> Profile | None:
    """The profile that a resource like `nvidia.com/mig-1g.10gb` names; None for every other resource."""
    return profile(resource.removeprefix(PREFIX)) if resource.startswith(PREFIX) else None


def resources(profiles: Iterable[str]) -> tuple[str, ...]:
    """The names of the resources of these profiles, each once; raises ValueError for a name that is no profile."""
    found: dict[str, None] = {}
    for name in profiles:
        one = profile(name)
        if one is None:
            raise ValueError(f"{name[:SHOWN]!r} is no MIG profile: expected one like 1g.10gb")
        found[one.resource] = None
    return tuple(found)


def index(gpu: int, place: int) -> int:
    """The index in the inventory of the instance with this place on a GPU; raises ValueError beyond the bounds."""
    if not (0 <= gpu < FIRST and 0 <= place < PER_GPU):
        raise ValueError(f"instance {place} of GPU {gpu}: expected a GPU below {FIRST} and a place below {PER_GPU}")
    return FIRST + gpu * PER_GPU + place


def indexes(gpu: int) -> range:
    """All indexes of instances of a GPU, none beyond the bounds."""
    return range(index(gpu, 0), index(gpu, 0) + PER_GPU) if 0 <= gpu < FIRST else range(0)


class Place(msgspec.Struct, frozen=True):
    """Where a possible instance is on its GPU, in memory slices."""

    gpu: str
    """The UUID of the GPU."""
    profile: str
    start: int
    size: int

    @property
    def name(self) -> str:
        """What stands for its UUID, whether the instance exists or not: `GPU-1c…/3g.40gb@4:4`."""
        return f"{self.gpu}/{self.profile}@{self.start}:{self.size}"

    def overlaps(self, other: Place) -> bool:
        """Whether both cannot exist at the same time."""
        together = self.start < other.start + other.size and other.start < self.start + self.size
        return together and self.gpu == other.gpu


@lru_cache(maxsize=16384)
def place(name: str) -> Place | None:
    """The place that such a name tells; None for every other UUID."""
    found = _PLACE.fullmatch(name)
    if found is None or profile(found["profile"]) is None:
        return None
    made = Place(found["gpu"], found["profile"], int(found["start"]), int(found["size"]))
    return made if made.start + made.size <= MEMORY_SLICES else None


def place_index(gpu: int, start: int, size: int, rank: int) -> int:
    """The index of a possible instance; `rank`: its number among the profiles of this place and size."""
    if not (0 <= gpu < CUT_GPUS and 0 <= start < MEMORY_SLICES and 1 <= size <= MEMORY_SLICES and 0 <= rank < ALIKE):
        raise ValueError(f"a possible instance of GPU {gpu} at {start}:{size}, the {rank}th: expected {EXPECTED}")
    return ON_DEMAND + ((gpu * MEMORY_SLICES + start) * MEMORY_SLICES + size - 1) * ALIKE + rank


def gpu_of(index: int) -> int | None:
    """The index of the GPU of an instance; None for the index of a GPU."""
    if index < FIRST:
        return None
    return (index - FIRST) // PER_GPU if index < ON_DEMAND else (index - ON_DEMAND) // (MEMORY_SLICES**2 * ALIKE)


def shown(index: int) -> str:
    """An index for people: `3`, and `3:2` for an instance, as `nvidia-smi` and NVIDIA_VISIBLE_DEVICES write them.

    An instance that is made on demand is `3@4-7`: on GPU 3, in the memory slices 4 to 7.
    """
    gpu = gpu_of(index)
    if index < ON_DEMAND:
        return str(index) if gpu is None else f"{gpu}:{(index - FIRST) % PER_GPU}"
    start, size = divmod((index - ON_DEMAND) // ALIKE % MEMORY_SLICES**2, MEMORY_SLICES)
    return f"{gpu}@{start}" + (f"-{start + size}" if size else "")
