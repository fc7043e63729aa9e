"""The regions of this node's containers: a file for each, in one folder of the host.

A container sees its own file only, so it can write nothing beside it. How large it may grow, the folder's file system
bounds, which must be a small one. Files take their room when they are made: a neighbour who fills the file system
cannot take it from under a running program.
"""

import errno
import os
import re
import shutil
import stat
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from deviceplugin.library import region

DEFAULT_DIR = "/var/lib/gangshare/library"
FILES, LOCKS = "regions", "locks"
NAME = re.compile(r"([0-9A-Za-z-]{1,64})_([0-9a-z-]{1,63})\.cache")
MIB = 2**20
OURS, FOR_ALL, FOR_ALL_FILE = 0o755, 0o777, 0o666
"""Containers run as any user."""
AT_ONCE = 4096
"""Files that one look removes at most."""


class Owner(NamedTuple):
    """The container of a region."""

    uid: str
    container: str


class Regions:
    """The files below one folder. Its calls block."""

    def __init__(self, folder: Path, most_mib: int = 0) -> None:
        """The file system of `folder` may have at most `most_mib`: otherwise nothing should be made there."""
        self._folder, self._most_mib = folder, most_mib

    @property
    def locks(self) -> Path:
        """The folder in which programs of all containers lock."""
        return self._folder / LOCKS

    def path(self, owner: Owner) -> Path:
        """The file of a container; raises OSError for names that no container has."""
        name = f"{owner.uid}_{owner.container}.cache"
        if NAME.fullmatch(name) is None:
            raise OSError(errno.EINVAL, "no name of a container")
        return self._folder / FILES / name

    def trouble(self) -> str:
        """Why containers cannot have regions here, "" if they can."""
        try:
            system = os.statvfs(self._folder)
            self._prepare()
        except OSError as error:
            return f"the folder {self._folder} is not usable ({error.strerror})"
        size = system.f_frsize * system.f_blocks // MIB
        if size > self._most_mib:
            most = f"{self._most_mib} MiB (--library-dir-mib)"
            return f"the file system of {self._folder} has {size} MiB: containers could fill it, so at most {most}"
        return ""

    def make(self, owner: Owner) -> None:
        """Make the file of a container, or complete it; raises OSError."""
        path = self.path(owner)
        self._prepare()
        if path.is_dir() and not path.is_symlink():
            _remove(path)  # a runtime makes a folder where a file that it should mount is missing
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, FOR_ALL_FILE)
        try:
            if os.fstat(descriptor).st_size not in region.SIZES:  # else the time of its last write stays
                os.posix_fallocate(descriptor, 0, region.SIZE)
                os.fchmod(descriptor, FOR_ALL_FILE)
        finally:
            os.close(descriptor)

    def complete(self, owners: Collection[Owner]) -> None:
        """Make the files of these containers that are missing, as after a reboot; raises OSError."""
        for owner in owners:
            if not self.path(owner).is_file():
                self.make(owner)

    def sweep(self, kept: Collection[str], before: float) -> int:
        """Remove the files of all pods but these that were left alone since `before`, in seconds since 1970.

        Returns how many there were; raises OSError.
        """
        gone: list[Path] = []
        with os.scandir(self._folder / FILES) as entries:
            for entry in entries:
                found = NAME.fullmatch(entry.name)
                if not found or found[1] in kept or len(gone) >= AT_ONCE:
                    continue
                if entry.stat(follow_symlinks=False).st_ctime < before:
                    gone.append(Path(entry.path))
        for path in gone:
            _remove(path)
        return len(gone)

    def _prepare(self) -> None:
        for path, mode in ((self._folder / FILES, OURS), (self.locks, FOR_ALL)):
            path.mkdir(exist_ok=True)
            if stat.S_IMODE(path.stat().st_mode) != mode:  # whatever our umask is
                path.chmod(mode)


def _remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; raises OSError."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path)
    except RecursionError as error:
        raise OSError(errno.ELOOP, "folders too deep within one another", str(path)) from error
