"""The shared memory of MPS: a tmpfs of its own, so that clients cannot fill the host's."""

import ctypes
import os
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
NOSUID, NODEV = 2, 4
"""Flags of mount(2)."""


class MountError(Exception):
    """The folder cannot become a tmpfs."""


def mount(folder: Path, size_mib: int, mounts: Path = MOUNTS) -> None:
    """Make this folder a tmpfs, unless it is one; raises MountError. It stays when we end: clients use it."""
    folder.mkdir(parents=True, exist_ok=True)
    if mounted(folder, mounts):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={size_mib}m,mode=1777".encode()
    if libc.mount(b"tmpfs", bytes(folder), b"tmpfs", ctypes.c_ulong(NOSUID | NODEV), options):
        raise MountError(f"no tmpfs can be mounted on {folder} ({os.strerror(ctypes.get_errno())})")


def mounted(folder: Path, mounts: Path = MOUNTS) -> bool:
    """Whether something is mounted on this folder."""
    return any(line.split()[4:5] == [str(folder)] for line in mounts.read_text().splitlines())
