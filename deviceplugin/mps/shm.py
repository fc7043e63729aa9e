"""The shared memory of MPS: a tmpfs of its own, so that clients cannot fill the host's.

Clients have it as /dev/shm, and so have the daemons, which are our children.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
OURS = Path("/dev/shm")
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


def share(folder: Path, size_mib: int, mounts: Path = MOUNTS, call: Call = mount) -> None:
    """Make this folder a tmpfs, unless it is one, and our /dev/shm; raises MountError.

    The tmpfs stays when we end: clients use it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not mounted(folder, mounts):
        call(b"tmpfs", bytes(folder), b"tmpfs", NOSUID | NODEV, f"size={size_mib}m,mode=1777".encode())
    call(bytes(folder), bytes(OURS), None, BIND, None)


def mounted(folder: Path, mounts: Path = MOUNTS) -> bool:
    """Whether something is mounted on this folder."""
    return any(line.split()[4:5] == [str(folder)] for line in mounts.read_text().splitlines())
