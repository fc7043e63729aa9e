"""What the MPS component and the device plugin tell each other: two files in one folder of the host.

The plugin writes who holds which GPU (`holders.json`), the component how MPS stands on each GPU (`state.json`). Both
replace their file as a whole. A container with a part of a GPU starts only once the component has admitted it.
"""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from protos import files
from protos.contract import codec
from protos.contract.bounds import GPU_AMOUNT, GPU_TEXT, GPUS_PER_NODE, MPS_FILE, MPS_PATH, NAME
from protos.files import FileError

T = TypeVar("T")
HOLDERS, STATE = "holders.json", "state.json"
GPUS, SHM = "gpus", "shm"
"""Folders beside them, each a tmpfs of limited size: containers can write into them."""
PIPE, SERVER = "pipe", "gpu"
"""In a GPU's folder: that of the daemon's pipes, and the name of the server that version 3 has there."""
DEFAULT_DIR = "/run/gangshare/mps"

Uuid = Annotated[str, msgspec.Meta(min_length=1, max_length=GPU_TEXT.most, pattern=r"^[A-Za-z0-9-]+$")]
"""Also the name of the GPU's folder."""
Name = Annotated[str, msgspec.Meta(max_length=NAME.most)]
Key = Annotated[str, msgspec.Meta(max_length=2 * NAME.most + 1)]
Text = Annotated[str, msgspec.Meta(max_length=GPU_TEXT.most)]
Path_ = Annotated[str, msgspec.Meta(max_length=MPS_PATH.most)]
Amount = Annotated[int, msgspec.Meta(ge=0, le=GPU_AMOUNT.most)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Phase = Literal["starting", "serving", "yielded", "blocked", "wedged"]
"""`yielded`: MPS is off while a container holds the whole GPU; `blocked`: it cannot serve now, `why` says why."""


class Holder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A container that holds a GPU, or is about to."""

    pod: Name
    """The UID of the pod."""
    container: Name
    gpu: Uuid
    mps: bool = False
    """It was given the pipes of MPS, or will be. Otherwise MPS must be off while it holds the GPU."""
    mem_mib: Amount = 0
    """Its memory, 0 if it has no limit."""
    percent: Percent = 0
    """Its part of the GPU's threads, 0 if it has no limit."""
    ends: float = 0.0
    """When the kubelet kills it, in seconds since the epoch; 0 while its pod is not being deleted."""

    @property
    def key(self) -> str:
        return f"{self.pod}/{self.container}"


class Holders(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All containers of the node that hold GPUs."""

    v: int
    holders: tuple[Holder, ...] = ()


class Process(msgspec.Struct, frozen=True, array_like=True):
    """A process by its ID and its start in clock ticks since boot, so that no later process is taken for it."""

    pid: Annotated[int, msgspec.Meta(ge=2, le=2**31 - 1)]
    start: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Served(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How MPS stands on one GPU."""

    phase: Phase
    why: Text = ""
    admitted: dict[Key, Path_] = {}
    """The folder of the pipes for each admitted container, by its key."""
    processes: tuple[Process, ...] = ()
    """The daemon and its servers."""


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The GPUs that are given over to MPS."""

    v: int
    beat: float
    """When the component last looked, in seconds since boot."""
    protocol: Literal[2, 3]
    """3: a container gets limits that it cannot change."""
    gpus: Annotated[dict[Uuid, Served], msgspec.Meta(max_length=GPUS_PER_NODE.most)]


def folder_of(folder: Path, uuid: str) -> Path:
    """The folder of a GPU's daemon, which containers see parts of."""
    return folder / GPUS / uuid


def namespace(key: str) -> str:
    """The name of a holder's namespace: lowercase letters and digits, short for the path of a socket."""
    return "c" + hashlib.sha256(key.encode()).hexdigest()[:16]


def pipes_of(folder: Path, holder: Holder, protocol: Literal[2, 3]) -> Path:
    """The folder of a container's pipes; with version 3 it has one of its own."""
    pipes = folder_of(folder, holder.gpu) / PIPE
    return pipes if protocol == 2 else pipes / SERVER / namespace(holder.key)


def now() -> float:
    """Seconds since boot, the same for all processes of the host."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _decoded(kind: type[T]) -> Callable[[bytes], T]:
    def parse(content: bytes) -> T:
        try:
            decoded = msgspec.json.decode(content, type=kind)
        except codec.BAD_JSON as error:
            raise FileError(f"expected a file of the MPS component or of the plugin ({error})") from error
        version: int = getattr(decoded, "v", 0)
        if version != codec.VERSION:
            raise FileError(f"version is {version}: expected {codec.VERSION}")
        return decoded

    return parse


decode_holders, decode_state = _decoded(Holders), _decoded(State)
"""The content of a file; raise FileError."""


def read_holders(folder: Path) -> Holders | None:
    """Who holds which GPU, None if the plugin has not said; raises FileError."""
    return _read(folder / HOLDERS, decode_holders)


def read_state(folder: Path) -> State | None:
    """How MPS stands, None without a component; raises FileError."""
    return _read(folder / STATE, decode_state)


def write(folder: Path, content: Holders | State) -> None:
    """Replace the file of this content as a whole; raises OSError."""
    path = folder / (HOLDERS if isinstance(content, Holders) else STATE)
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_bytes(msgspec.json.encode(content))
    beside.replace(path)


def _read(path: Path, parse: Callable[[bytes], T]) -> T | None:
    return files.read(path, parse, MPS_FILE) if files.stamp(path) else None
