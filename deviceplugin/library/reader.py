"""Reads a region that a container writes: bounded, never mapped into our memory, whatever lies at its path."""

import os
import stat
from pathlib import Path

from deviceplugin.library import region
from deviceplugin.library.region import HEADER, PROCESS, Region, RegionError

SAFELY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Neither waits for a writer of a pipe nor follows a link. A mapped file that is cut would end us (SIGBUS)."""


def read(path: Path) -> tuple[Region, float]:
    """The region, and when it was written last, in seconds since 1970; raises RegionError."""
    try:
        descriptor = os.open(path, SAFELY)
    except OSError as error:
        raise RegionError(f"the region cannot be opened ({error.strerror})") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise RegionError("the region is no regular file")
        if status.st_size not in region.SIZES:
            raise RegionError(f"the region has {status.st_size} bytes: expected {region.SIZE}")
        header = region.header(os.pread(descriptor, HEADER, 0))
        number = region.count(os.pread(descriptor, 4, region.COUNT_AT))
        processes = os.pread(descriptor, number * PROCESS, HEADER)
        if len(processes) != number * PROCESS:
            raise RegionError("the region is truncated")
        return region.region(header, processes), status.st_mtime
    except OSError as error:
        raise RegionError(f"the region cannot be read ({error.strerror})") from error
    finally:
        os.close(descriptor)
