"""What a region says, by its documented layout, version 1.2, little endian. Pure.

Containers write it, so nothing in it is believed before its bounds are checked. The layout of other versions is not
known, so they say nothing.

| offset | | |
|---|---|---|
| 0, 4, 8 | int32 | 19920718 once it is initialised; major and minor version |
| 56, 64 | uint64, 16 × 96 bytes | number of GPUs, their UUIDs |
| 1600 | 16 × uint64 | memory limits, in bytes |
| 1856 | 1024 × 1960 bytes | processes: ID in the container at 0, use of each GPU in bytes at 8 + 64 n + 32 |
| 2008896 | int32 | how many of the processes count |
"""

import struct
from typing import NamedTuple

MAGIC, VERSION = 19920718, (1, 2)
GPUS, UUID, PROCESSES = 16, 96, 1024
HEADER = 1856
"""Bytes before the processes."""
PROCESS = 1960
COUNT_AT = HEADER + PROCESSES * PROCESS
SIZE = 2_008_952
SIZES = (SIZE, SIZE + 1)
"""The library writes one byte after the region."""
USED_AT = [8 + 64 * gpu + 32 for gpu in range(GPUS)]
MOST_USED = 2**44
"""Bytes of a GPU that a process may seem to use; a counter that fell below 0 seems to be more."""


class RegionError(Exception):
    """The file is no region that proves anything; the message says why."""


class Device(NamedTuple):
    """A GPU of the container, in bytes."""

    uuid: str
    limit: int
    """0 if it has none."""
    used: int | None = None
    """By all processes, None if that is not told."""


class Header(NamedTuple):
    """What comes before the processes."""

    devices: tuple[Device, ...]
    """None before the library has counted them."""
    common: int
    """The limit of all GPUs, counted or not, in bytes; 0 if they have none, or unequal ones."""


class Region(NamedTuple):
    """An initialised region."""

    devices: tuple[Device, ...]
    common: int
    live: int
    """Processes that use the library."""

    def limit(self, uuid: str) -> int | None:
        """The limit on a GPU in bytes, 0 if it has none; None if the region does not tell of this GPU."""
        if not self.devices:
            return self.common
        return next((device.limit for device in self.devices if device.uuid == uuid), None)


def header(content: bytes) -> Header:
    """What the first HEADER bytes say; raises RegionError."""
    if len(content) != HEADER:
        raise RegionError("the region is truncated")
    magic, major, minor = struct.unpack_from("<iii", content, 0)
    if magic != MAGIC:
        raise RegionError("the region is not initialised")
    if (major, minor) != VERSION:
        raise RegionError(f"the region has version {major}.{minor}: only 1.2 is known")
    (number,) = struct.unpack_from("<Q", content, 56)
    if number > GPUS:
        raise RegionError("the region has more GPUs than its list takes")
    limits = struct.unpack_from(f"<{GPUS}Q", content, 1600)
    uuids = [_text(content[64 + UUID * gpu : 64 + UUID * (gpu + 1)]) for gpu in range(number)]
    if len(set(uuids)) != len(uuids):
        raise RegionError("the region has one GPU twice")
    devices = tuple(Device(uuid, limit) for uuid, limit in zip(uuids, limits, strict=False))
    return Header(devices, limits[0] if len(set(limits)) == 1 else 0)


def count(content: bytes) -> int:
    """How many processes count; raises RegionError."""
    if len(content) != 4:
        raise RegionError("the region is truncated")
    (number,) = struct.unpack("<i", content)
    if not 0 <= number <= PROCESSES:
        raise RegionError("the region has more processes than its list takes")
    return int(number)


def region(found: Header, processes: bytes) -> Region:
    """The region with this header and this list of processes; raises RegionError."""
    if len(processes) % PROCESS:
        raise RegionError("the region is truncated")
    live = [at for at in range(0, len(processes), PROCESS) if struct.unpack_from("<i", processes, at)[0] > 0]
    used = []
    for gpu in range(len(found.devices)):
        each = [struct.unpack_from("<Q", processes, at + USED_AT[gpu])[0] for at in live]
        used.append(None if any(number > MOST_USED for number in each) else sum(each))
    devices = (Device(device.uuid, device.limit, use) for device, use in zip(found.devices, used, strict=True))
    return Region(tuple(devices), found.common, len(live))


def _text(field: bytes) -> str:
    """The UUID in a field that ends with a zero; raises RegionError."""
    text, zero, _ = field.partition(b"\0")
    if not text or not zero or not text.isascii() or not text.decode().isprintable():
        raise RegionError("the region has a GPU without a UUID")
    return text.decode()
