"""The GPUs of this machine as a value, and the interface that reads them.

`nvml` reads real GPUs, `fake` the GPUs of a YAML profile. `devices` decides what the node offers of them.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from deviceplugin.partitioner.protocol import Kind
from protos.contract.inventory import Fabric, Link
from protos.contract.isolation import Compute
from protos.contract.reason import Reason


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, or one MIG instance. Fields that the driver does not report keep their default."""

    index: int
    uuid: str
    minor: int
    """N of /dev/nvidiaN."""
    mem_mib: int
    """Usable memory: total less what the driver reserves."""
    model: str = ""
    clock_mhz: int = 0
    """Maximum SM clock."""
    cc: str = ""
    """CUDA compute capability, major.minor."""
    numa: int = -1
    """NUMA node, -1 where unknown."""
    pci: str = ""
    """PCI bus ID, domain:bus:device.function."""
    mig: bool = False
    """In MIG mode, or about to be."""
    trouble: str = ""
    """Why it should not be used now: it does not answer, or a recovery action is pending."""
    profile: str = ""
    """The MIG profile of an instance, "" for a GPU."""
    parent: str = ""
    """The UUID of an instance's GPU."""
    gi: int = -1
    """ID of the GPU instance."""
    ci: int = -1
    """ID of the compute instance."""
    nodes: tuple[str, ...] = ()
    """The device nodes that an instance has beside that of its GPU, none where they are unknown."""


class MpsLevel(NamedTuple):
    """How MPS caps the compute of parts of this machine's GPUs, and why not better."""

    compute: Compute = ""
    why: str = ""
    phases: tuple[str, ...] = ()
    """Of each GPU that is given over to MPS, in order of the words; `silent` if its component does not answer."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs in index order, after them their MIG instances, and how the GPUs are linked."""

    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    fabric: Fabric | None = None
    driver: str = ""
    """Version of the driver, "" if unknown."""
    limits: bool = False
    """Whether the driver can limit the memory of a control group."""
    toolkit: str = ""
    """Version of the container toolkit, which only a fake machine knows."""
    kinds: Mapping[str, tuple[Kind, ...]] = {}
    """The MIG instances that can be made on demand, by UUID of the GPU."""
    mps: MpsLevel | None = None
    """None where the operator has set up no MPS."""

    @property
    def cards(self) -> tuple[Gpu, ...]:
        """The GPUs without their instances."""
        return tuple(gpu for gpu in self.gpus if not gpu.profile)


class MemoryLimit(NamedTuple):
    """The driver's memory limit of a control group on one GPU, in bytes."""

    hard: int
    used: int = 0


class Xid(NamedTuple):
    """An error that the driver reported for a GPU; an empty UUID means every GPU."""

    uuid: str
    code: int


class SourceError(Exception):
    """The GPUs cannot be read now; the message says why."""


class Source(Protocol):
    """Reads the machine. Calls may block, and come one at a time from a worker thread."""

    period: float
    """Seconds between two readings."""

    @property
    def trouble(self) -> Reason | None:
        """Why the machine is not read as its operator describes it, None if it is."""
        ...

    def read(self) -> Machine:
        """The machine as it is now; raises SourceError."""
        ...

    def poll(self, timeout: float) -> list[Xid]:
        """The errors reported since the last call; waits up to `timeout` seconds for one."""
        ...

    def memory_limit(self, uuid: str, cgroup: str) -> MemoryLimit | None:
        """The limit of a control group (its directory) on a GPU, None if it has none; raises SourceError."""
        ...

    def close(self) -> None: ...
