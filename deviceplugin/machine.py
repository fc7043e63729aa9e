"""The GPUs of this machine as a value, and the port through which they are read.

`nvml` reads real GPUs, `fake` those of a YAML profile. What is offered of them to the cluster is decided elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from protos.contract.inventory import Fabric, Link


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. Fields that the driver does not tell keep their default."""

    index: int
    uuid: str
    minor: int
    """N of /dev/nvidiaN."""
    mem_mib: int
    """Usable memory: total less what the driver keeps for itself."""
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
    """Divided into MIG instances, or about to be."""
    trouble: str = ""
    """Why it should not be used at this moment: it does not answer, or a recovery action is pending."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs in index order, and how they are linked."""

    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    fabric: Fabric | None = None


class Xid(NamedTuple):
    """An error that the driver reported of a GPU; an empty UUID means every GPU."""

    uuid: str
    code: int


class SourceError(Exception):
    """The GPUs cannot be read now; the sentence says why and what would help."""


class Source(Protocol):
    """Where the machine is read. Calls may block, and come one at a time from a worker thread."""

    period: float
    """Seconds between two readings."""

    def read(self) -> Machine:
        """The machine as it is now; raises SourceError."""
        ...

    def poll(self, timeout: float) -> list[Xid]:
        """The errors reported since the last call; waits up to `timeout` seconds for one."""
        ...

    def close(self) -> None: ...
