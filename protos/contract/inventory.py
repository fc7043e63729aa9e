"""What a node has: the node annotation `gangshare.io/gpus`, written by the device plugin alone.

Memory is counted in units of `unitMiB` MiB (one cluster-wide setting) and floored per GPU: an H100 80GB has 79 GiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from protos.contract import codec, names

Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
HEALTHY = "ok"
MOST_GPUS = 1024
"""Of one node: more than that is a mistake of whoever wrote the number."""
_MADE_UP = "gpu-"
"""What stands before the number in the name of a GPU whose UUID is not known."""


class Gpu(msgspec.Struct, frozen=True, cache_hash=True, rename="camel", forbid_unknown_fields=True):
    """One GPU as the plugin sees it."""

    index: Natural
    uuid: Annotated[str, msgspec.Meta(min_length=1)]
    mem: Natural
    """Units that may be given away: floor(memMiB / unitMiB)."""
    minor: Natural = 0
    """N of /dev/nvidiaN."""
    model: str = ""
    mem_mib: Natural = msgspec.field(default=0, name="memMiB")
    """Usable memory: NVML total less reserved."""
    clock_mhz: Natural = msgspec.field(default=0, name="clockMHz")
    """Maximum SM clock."""
    cc: str = ""
    """CUDA compute capability, major.minor."""
    numa: int = -1
    """NUMA node, -1 where unknown."""
    pci: str = ""
    """PCI bus ID, domain:bus:device.function."""
    health: str = HEALTHY
    """`ok`, `sick:<why>`, `mig` (in MIG mode: offered in none of our resources) or `gone`."""


class Fabric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The NVLink fabric that reaches over several nodes (multi-node NVLink)."""

    cluster: str
    clique: Natural


Link = tuple[int, int, str]
"""(index, index, kind): NV<n> = n NVLinks, else PIX, PXB, PHB, NODE, SYS, as `nvidia-smi topo -m` prints them."""


class Inventory(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """All GPUs of a node. GPUs are in index order, their indexes and UUIDs distinct."""

    v: int
    unit_mib: Positive = msgspec.field(name="unitMiB")
    slices_per_gpu: Positive
    replicas: dict[str, Positive] = {}
    """A whole-GPU resource name → how many time slices of floor(slicesPerGpu / N) a GPU of it is served as."""
    state: Literal["ready", "leaving"] = "ready"
    """`leaving`: the plugin is going down; nothing new is bound here."""
    fabric: Fabric | None = None
    gpus: tuple[Gpu, ...]
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        indexes = [gpu.index for gpu in self.gpus]
        if indexes != sorted(set(indexes)):
            raise ValueError(f"GPU indexes {indexes} are not ascending and distinct")
        if len({gpu.uuid for gpu in self.gpus}) != len(self.gpus):
            raise ValueError("two GPUs with the same uuid")
        for name, count in self.replicas.items():
            if count > self.slices_per_gpu:
                raise ValueError(f"{count} replicas of {name} from {self.slices_per_gpu} slices a GPU")


_decoder = msgspec.json.Decoder(Inventory)


def decode(text: str | None) -> Inventory | None:
    """The inventory in annotation `gangshare.io/gpus`, None where absent; raises codec.ContractError."""
    return codec.decode(names.GPUS, text, _decoder)


def encode(inventory: Inventory) -> str:
    """The annotation's text."""
    return codec.encode(inventory)


def from_gpushare(capacity: Mapping[str, str | int], unit_mib: int, slices_per_gpu: int) -> Inventory | None:
    """Equal GPUs read from gpushare's node capacity (`aliyun.com/gpu-mem` ÷ `aliyun.com/gpu-count`); None without it.

    gpushare publishes no UUIDs: a GPU is known by its minor number alone, by a name that is made up of that.
    """
    try:
        total, count = int(capacity.get(names.ALIYUN_MEM, 0)), int(capacity.get(names.ALIYUN_COUNT, 0))
    except ValueError:
        return None
    if total <= 0 or not 0 < count <= MOST_GPUS:
        return None
    mem = total // count
    gpus = tuple(Gpu(index=i, minor=i, uuid=f"{_MADE_UP}{i}", mem=mem, mem_mib=mem * unit_mib) for i in range(count))
    return Inventory(v=codec.VERSION, unit_mib=unit_mib, slices_per_gpu=slices_per_gpu, gpus=gpus)


def made_up(uuid: str) -> bool:
    """Whether this is no UUID, but the name of a GPU in an inventory that was read from gpushare's capacity."""
    return uuid.startswith(_MADE_UP) and uuid.removeprefix(_MADE_UP).isdecimal()
