"""Reads what this node has of the library: its file, the list beside it, the folder of regions. Nothing is believed."""

import os
import platform
import stat
from collections.abc import Callable
from pathlib import Path

from deviceplugin import cgroups
from deviceplugin.library import contract, levels
from deviceplugin.library.levels import Facts
from deviceplugin.library.regions import Regions
from deviceplugin.machine import Machine
from protos import files

OPENED = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
READ = 256
"""Bytes of a file that are read."""
Check = Callable[[bytes], str]
"""Why a file that begins so may not be used, "" if it may."""


class Probe:
    """The facts of one node. Its calls block."""

    def __init__(self, library: Path, regions: Regions, groups: Path, *, caps_compute: bool) -> None:
        """`library` is at the same path on the host; `groups` is the root of the host's control groups."""
        self.library, self._regions, self._groups, self._caps_compute = library, regions, groups, caps_compute

    def facts(self, machine: Machine) -> Facts:
        """What the node has now."""
        stamp = files.stamp(self.library)
        return Facts(
            library=trouble(self.library, lambda head: levels.elf_obstacle(head, platform.machine())),
            preload=trouble(self.library.with_name(contract.PRELOAD_NAME), levels.preload_obstacle),
            folder=self._regions.trouble(),
            processes=cgroups.shows_processes(self._groups),
            mps=machine.mps is not None,
            caps_compute=self._caps_compute,
            mark="-".join(map(str, stamp)) if stamp else "",
        )


def trouble(path: Path, check: Check) -> str:
    """Why a file may not be loaded into containers, "" if it may."""
    try:
        descriptor = os.open(path, OPENED)
    except OSError as error:
        return f"{path} cannot be opened ({error.strerror})"
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            return f"{path} is no regular file"
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{path} may be written by others than its owner"
        found = check(os.pread(descriptor, READ, 0))
    except OSError as error:
        return f"{path} cannot be read ({error.strerror})"
    finally:
        os.close(descriptor)
    return f"{path} {found}" if found else ""
