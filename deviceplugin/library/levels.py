"""Whether this node can limit memory by the library, from what was read. Pure."""

import msgspec

from deviceplugin.library.contract import LIBRARY
from protos.contract.isolation import Compute, Isolation

HELD = "the library holds programs that load it: static programs and those that call the driver themselves are not held"
"""What this way of enforcing does not do."""
COMPUTE = "nothing on this node caps compute"
MACHINES = {"x86_64": 62, "aarch64": 183}
"""Numbers of ELF for the machines whose regions have the known layout."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was read on this node."""

    library: str = ""
    """Why the file is no library that may be loaded, "" if it is."""
    preload: str = ""
    """Why the list of libraries to load is not usable, "" if it is."""
    folder: str = ""
    """Why the folder of regions is not usable, "" if it is."""
    processes: bool = False
    """Whether the processes of containers are seen: those without the library are found by them."""
    mps: bool = False
    """Whether MPS is set up on this node."""
    caps_compute: bool = False
    """Whether the operator wants compute capped by slices, too."""
    mark: str = ""
    """Differs after the library was changed or replaced."""


def obstacles(facts: Facts) -> list[str]:
    """Why the library does not limit the memory of containers, empty if it does."""
    found = [facts.library, facts.preload, facts.folder]
    if not facts.processes:
        found.append("the plugin sees no processes of other containers, so it cannot check that they load the library")
    if facts.mps:
        found.append("MPS is set up on this node, and the library is not used beside it")
    return [text for text in found if text]


def isolation(facts: Facts) -> Isolation:
    """What the library gives where nothing is in its way."""
    compute: Compute = "cooperative" if facts.caps_compute else ""
    why = HELD if compute else f"{HELD}; {COMPUTE}"
    return Isolation(memory="library", compute=compute, why=why)


def elf_obstacle(head: bytes, machine: str) -> str:
    """Why a file with these first bytes is no library of this machine, "" if it is."""
    number = MACHINES.get(machine)
    if number is None:
        return f"is not used on {machine[:40]}: the layout of regions is not known there"
    if head[:6] != b"\x7fELF\x02\x01" or head[16:18] != b"\x03\x00":
        return "is no shared library of 64 bits"
    if head[18:20] != number.to_bytes(2, "little"):
        return f"is a library of another machine than {machine}"
    return ""


def preload_obstacle(content: bytes) -> str:
    """Why a list with this content does not load the library, "" if it does."""
    return "" if content.split() == [str(LIBRARY).encode()] else f"does not name {LIBRARY} alone"
