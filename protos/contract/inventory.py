"""The GPUs of a node: the node annotation `gangshare.io/gpus`, which only the device plugin writes.

Memory is counted in units of `unitMiB` MiB (one cluster-wide setting) and floored per GPU: an H100 80GB has 79 GiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from protos.contract import codec, mig, names
from protos.contract.bounds import (
    GPU_AMOUNT,
    GPU_INDEX,
    GPU_TEXT,
    GPUS_PER_NODE,
    LINK_KIND,
    LINKS_PER_NODE,
    MIG_PLACES,
    MIG_PROFILE,
    MIG_PROFILES,
    REPLICA_NAMES,
)
from protos.contract.isolation import PROMISED, Isolation
from protos.contract.quantity import QuantityError, integer

Positive = Annotated[int, msgspec.Meta(ge=1, le=GPU_AMOUNT.most)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=GPU_AMOUNT.most)]
Index = Annotated[int, msgspec.Meta(ge=0, le=GPU_INDEX.most)]
Text = Annotated[str, msgspec.Meta(max_length=GPU_TEXT.most)]
Uuid = Annotated[str, msgspec.Meta(min_length=1, max_length=GPU_TEXT.most)]
ProfileName = Annotated[str, msgspec.Meta(min_length=1, max_length=MIG_PROFILE.most)]
Numa = Annotated[int, msgspec.Meta(ge=-1, le=GPU_INDEX.most)]
Slice = Annotated[int, msgspec.Meta(ge=0, lt=mig.MEMORY_SLICES)]
HEALTHY = "ok"
IN_MIG_MODE = "mig"
_MADE_UP = "gpu-"
"""Prefix of the name of a GPU without a known UUID; the index follows."""


class Gpu(msgspec.Struct, frozen=True, cache_hash=True, rename="camel", forbid_unknown_fields=True):
    """One GPU as the plugin reports it."""

    index: Index
    uuid: Uuid
    mem: Natural
    """Allocatable units: floor(memMiB / unitMiB)."""
    minor: Index = 0
    """N of /dev/nvidiaN."""
    model: Text = ""
    mem_mib: Natural = msgspec.field(default=0, name="memMiB")
    """Usable memory: NVML's total minus reserved."""
    clock_mhz: Natural = msgspec.field(default=0, name="clockMHz")
    """Maximum SM clock."""
    cc: Text = ""
    """CUDA compute capability, major.minor."""
    numa: Numa = -1
    """NUMA node, -1 where unknown."""
    pci: Text = ""
    """PCI bus ID, domain:bus:device.function."""
    health: Text = HEALTHY
    """`ok`, `sick:<why>`, `mig` (in MIG mode: only its instances are served) or `gone`."""
    mig: ProfileName | msgspec.UnsetType = msgspec.UNSET
    """The MIG profile of an instance; not written for a GPU."""

    @property
    def profile(self) -> str:
        """The MIG profile of an instance, "" for a GPU."""
        return self.mig or ""

    @property
    def slices(self) -> int:
        """Its compute slices, of seven; all seven for a GPU."""
        found = mig.profile(self.mig) if self.mig else None
        return found.slices if found is not None else mig.SLICES


class Instance(Gpu, frozen=True, cache_hash=True, kw_only=True):
    """A MIG instance that can be made on demand: `uuid` is the name of its place, and it exists while a pod has it."""

    most: int = 0
    """How many instances of its profile its GPU can have."""


class Possible(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A MIG profile that instances on demand can have, with all its places on a GPU."""

    profile: ProfileName
    mem: Natural
    """Allocatable units."""
    size: Annotated[int, msgspec.Meta(ge=1, le=mig.MEMORY_SLICES)]
    """Memory slices."""
    starts: Annotated[tuple[Slice, ...], msgspec.Meta(min_length=1, max_length=mig.MEMORY_SLICES)]
    """The first memory slice of each place, ascending."""
    most: Annotated[int, msgspec.Meta(ge=1, le=mig.MEMORY_SLICES)]
    """How many of them the driver makes."""
    mem_mib: Natural = msgspec.field(default=0, name="memMiB")


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """GPUs in MIG mode whose instances are made on demand, and what can be made of each."""

    gpus: Annotated[tuple[Index, ...], msgspec.Meta(max_length=mig.CUT_GPUS)]
    profiles: Annotated[tuple[Possible, ...], msgspec.Meta(max_length=MIG_PROFILES.most)]


class Fabric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The node's part of a multi-node NVLink fabric."""

    cluster: Text
    clique: Natural


LinkKind = Annotated[str, msgspec.Meta(max_length=LINK_KIND.most)]
Link = tuple[Index, Index, LinkKind]
"""(index, index, kind): NV<n> = n NVLinks, else PIX, PXB, PHB, NODE, SYS, as `nvidia-smi topo -m` prints them."""


class Inventory(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """All GPUs of a node. GPUs are in index order, their indexes and UUIDs distinct."""

    v: int
    unit_mib: Positive = msgspec.field(name="unitMiB")
    slices_per_gpu: Positive
    replicas: dict[str, Positive] = {}
    """Whole-GPU resource name → N: a GPU is served as N replicas of floor(slicesPerGpu / N) slices."""
    state: Literal["ready", "leaving"] = "ready"
    """`leaving`: the plugin is shutting down, and no new pods are bound to the node."""
    fabric: Fabric | None = None
    isolation: Isolation | None = None
    """What the node has proved for parts; None where the operator asks for none."""
    gpus: tuple[Gpu, ...]
    links: tuple[Link, ...] = ()
    mig_strategy: Literal["single"] | msgspec.UnsetType = msgspec.UNSET
    """`single`: requests for whole GPUs get MIG instances, too, as with NVIDIA's plugin; else not written."""

    mig_layouts: tuple[Layout, ...] | msgspec.UnsetType = msgspec.UNSET
    """GPUs whose MIG instances are made on demand; not written if there are none."""

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """What can be made on demand, each GPU in one layout at most."""
        return self.mig_layouts or ()

    @property
    def single(self) -> bool:
        """Whether requests for whole GPUs get instances."""
        return self.mig_strategy == "single"

    @property
    def enforced(self) -> Isolation:
        """How parts are isolated here: promised where the node publishes nothing."""
        return self.isolation or PROMISED

    def __post_init__(self) -> None:
        for bound, count in (
            (GPUS_PER_NODE, len(self.gpus)),
            (LINKS_PER_NODE, len(self.links)),
            (REPLICA_NAMES, len(self.replicas)),
        ):
            if count > bound.most:
                raise ValueError(bound.exceeded(count))
        indexes = [gpu.index for gpu in self.gpus]
        if indexes != sorted(set(indexes)):
            raise ValueError(f"GPU indexes {indexes} are not ascending and distinct")
        if any(gpu.mig for gpu in self.gpus):
            self._check_instances()
        if len({gpu.uuid for gpu in self.gpus}) != len(self.gpus):
            raise ValueError("two GPUs with the same uuid")
        if self.mig_layouts:
            self._check_layouts()
        for name, count in self.replicas.items():
            if count > self.slices_per_gpu:
                raise ValueError(f"{count} replicas of {name} from {self.slices_per_gpu} slices a GPU")

    def _check_instances(self) -> None:
        """Raise ValueError for an instance that cannot be one. What it is part of must not be given as well."""
        healthy = {gpu.index for gpu in self.gpus if gpu.health == HEALTHY}
        for gpu in self.gpus:
            if not gpu.mig:
                continue
            parent = mig.gpu_of(gpu.index)
            if mig.profile(gpu.mig) is None or parent is None or gpu.index >= mig.ON_DEMAND:
                raise ValueError(f"GPU {gpu.index} has the MIG profile {gpu.mig!r}: expected one like 1g.10gb")
            if parent in healthy:
                raise ValueError(f"instance {mig.shown(gpu.index)} is of GPU {parent}, which is not in MIG mode")

    def _check_layouts(self) -> None:
        """Raise ValueError for places that cannot be."""
        cut = [index for layout in self.layouts for index in layout.gpus]
        health = {gpu.index: gpu.health for gpu in self.gpus if not gpu.mig}
        for index in cut:
            if cut.count(index) > 1 or index >= mig.CUT_GPUS or health.get(index, HEALTHY) == HEALTHY:
                raise ValueError(
                    f"GPU {index} in migLayouts: expected a GPU of this node in MIG mode, below {mig.CUT_GPUS}, once"
                )
        for possible in (each for layout in self.layouts for each in layout.profiles):
            ends = possible.starts[-1] + possible.size
            ascending = list(possible.starts) == sorted(set(possible.starts))
            if mig.profile(possible.profile) is None or not ascending or ends > mig.MEMORY_SLICES:
                raise ValueError(
                    f"{possible.profile!r} at {list(possible.starts)} in migLayouts: expected a MIG profile like "
                    f"1g.10gb, and ascending starts of {possible.size} memory slices of {mig.MEMORY_SLICES}"
                )
        places = sum(len(of.gpus) * sum(len(each.starts) for each in of.profiles) for of in self.layouts)
        if places > MIG_PLACES.most:
            raise ValueError(MIG_PLACES.exceeded(places))


_annotation = codec.Annotation(names.GPUS, Inventory)
decode, encode = _annotation.decode, _annotation.encode


def from_gpushare(capacity: Mapping[str, str | int], unit_mib: int, slices_per_gpu: int) -> Inventory | None:
    """Equal GPUs of gpushare's node capacity (`aliyun.com/gpu-mem` ÷ `aliyun.com/gpu-count`); None without it.

    gpushare publishes no UUIDs, so the names of the GPUs are made of their minor numbers.
    """
    try:
        total, count = integer(capacity.get(names.ALIYUN_MEM, 0)), integer(capacity.get(names.ALIYUN_COUNT, 0))
    except QuantityError:
        return None
    if total <= 0 or not 0 < count <= GPUS_PER_NODE.most or total // count * unit_mib > GPU_AMOUNT.most:
        return None
    mem = total // count
    gpus = tuple(Gpu(index=i, minor=i, uuid=f"{_MADE_UP}{i}", mem=mem, mem_mib=mem * unit_mib) for i in range(count))
    return Inventory(v=codec.VERSION, unit_mib=unit_mib, slices_per_gpu=slices_per_gpu, gpus=gpus)


def made_up(uuid: str) -> bool:
    """Whether this is the name of a GPU without UUID, from gpushare's capacity."""
    return uuid.startswith(_MADE_UP) and uuid.removeprefix(_MADE_UP).isdecimal()
