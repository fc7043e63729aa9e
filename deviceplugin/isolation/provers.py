"""Who tells which memory limits running containers have: the driver here, the library in `deviceplugin.library`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import structlog

from deviceplugin.cgroups import Group
from deviceplugin.isolation.checks import Key, Limited
from deviceplugin.machine import MemoryLimit, Source, SourceError

log = structlog.get_logger()


class Prover(Protocol):
    """Reads limits back. Calls block, and come one at a time from a worker thread."""

    def read(
        self, wanted: Mapping[Key, Limited], groups: Mapping[Group, Path]
    ) -> dict[Key, dict[str, MemoryLimit | None]]:
        """The limits of these containers by GPU, None for none. `groups`: the directories of control groups.

        Without an answer a container is left out, and so is a GPU of which nothing is known yet.
        """
        ...


class DriverProver:
    """The limits that the driver keeps for control groups."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def read(
        self, wanted: Mapping[Key, Limited], groups: Mapping[Group, Path]
    ) -> dict[Key, dict[str, MemoryLimit | None]]:
        found: dict[Key, dict[str, MemoryLimit | None]] = {}
        for key, given in wanted.items():
            directory = groups.get(Group(*key))
            if directory is None:
                continue
            try:
                found[key] = {uuid: self._source.memory_limit(uuid, str(directory)) for uuid in given.uuids}
            except SourceError as error:
                log.debug("memory_limit_not_read", container=key[1], error=str(error))
        return found
