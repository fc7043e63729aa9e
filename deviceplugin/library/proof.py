"""Whether a container is held to its limit by the library, by what its region and the driver say. Pure."""

from collections.abc import Collection

from deviceplugin.isolation.checks import Limited
from deviceplugin.library.region import Region
from deviceplugin.machine import MemoryLimit


def limits(
    given: Limited, region: Region | None, written: float, users: Collection[str] | None
) -> dict[str, MemoryLimit | None]:
    """The limits in force on the container's GPUs, None for a GPU that it uses without the library.

    A GPU is left out while nothing is known: the program has not begun to use GPUs. `written`: when the region was
    written last, in seconds since 1970; it stays from start to start of a container. `users`: the GPUs on which the
    container has processes, None if the driver does not tell them.
    """
    loaded = region is not None and written >= given.started and (bool(region.live) or not users)
    found: dict[str, MemoryLimit | None] = {}
    for uuid in given.uuids:
        limit = region.limit(uuid) if region is not None and loaded else None
        if limit is not None:
            found[uuid] = MemoryLimit(limit)
        elif users is not None and uuid in users:
            found[uuid] = None
    return found
