"""The folders that containers can write into, each a tmpfs of its own: so that they cannot fill the host's /run."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from deviceplugin.mps import exchange

MOUNTS = Path("/proc/self/mountinfo")
OURS = Path("/dev/shm")
GPUS_MIB = 256
"""Pipes and logs of all daemons."""
NOSUID, NODEV, BIND = 2, 4, 4096
"""Flags of mount(2)."""


class MountError(Exception):
    """The folder cannot become a tmpfs."""


Call = Callable[[bytes, bytes, bytes | None, int, bytes | None], object]
"""mount(2): source, target, type, flags and options."""


def mount(source: bytes, target: bytes, kind: bytes | None, flags: int, options: bytes | None) -> None:
    """Call mount(2); raises MountError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source, target, kind, ctypes.c_ulong(flags), options):
        why = os.strerror(ctypes.get_errno())
        raise MountError(f"{os.fsdecode(source)} cannot be mounted on {os.fsdecode(target)} ({why})")


def tmpfs(folder: Path, size_mib: int, mode: str, mounts: Path = MOUNTS, call: Call = mount) -> None:
    """Make this folder a tmpfs, unless it is one; raises MountError. It stays when we end: clients use it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not mounted(folder, mounts):
        options = f"size={size_mib}m,mode={mode}".encode()
        call(b"tmpfs", bytes(folder), b"tmpfs", NOSUID | NODEV, options)


def prepare(folder: Path, shm_mib: int, mounts: Path = MOUNTS, call: Call = mount) -> None:
    """Make the folders that containers can write into; raises MountError. Ours and theirs is one /dev/shm."""
    tmpfs(folder / exchange.GPUS, GPUS_MIB, "0755", mounts, call)
    tmpfs(folder / exchange.SHM, shm_mib, "1777", mounts, call)
    call(bytes(folder / exchange.SHM), bytes(OURS), None, BIND, None)


def mounted(folder: Path, mounts: Path = MOUNTS) -> bool:
    """Whether something is mounted on this folder."""
    return any(line.split()[4:5] == [str(folder)] for line in mounts.read_text().splitlines())
