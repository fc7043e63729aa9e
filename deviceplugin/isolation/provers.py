"""Who tells which memory limits running containers have: the driver here, the library in `deviceplugin.library`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import structlog

from deviceplugin.cgroups import Group
from deviceplugin.isolation.checks import Key, Limited, Read
from deviceplugin.machine import Source, SourceError

log = structlog.get_logger()


class Prover(Protocol):
    """Reads limits back. Calls block, and come one at a time from a worker thread."""

    def read(self, wanted: Mapping[Key, Limited], groups: Mapping[Group, Path]) -> dict[Key, dict[str, Read]]:
        """The limits of these containers by GPU, None for none. `groups`: the directories of control groups.

        Without an answer a container is left out, and so is a GPU of which nothing is known yet.
        """
        ...


class DriverProver:
    """The limits that the driver keeps for control groups of containers, and with `pods` for those of pods."""

    def __init__(self, source: Source, *, pods: bool) -> None:
        self._source, self._pods = source, pods

    def read(self, wanted: Mapping[Key, Limited], groups: Mapping[Group, Path]) -> dict[Key, dict[str, Read]]:
        found: dict[Key, dict[str, Read]] = {}
        for key, given in wanted.items():
            directory = groups.get(Group(*key))
            if directory is None:
                continue
            try:
                found[key] = {uuid: self._read(uuid, directory) for uuid in given.uuids}
            except SourceError as error:
                log.debug("memory_limit_not_read", container=key[1], error=str(error))
        return found

    def _read(self, uuid: str, directory: Path) -> Read:
        """The limit of a container's group on one GPU; if it has none, that of the group above, which is its pod's."""
        own = self._source.memory_limit(uuid, str(directory))
        if own is not None or not self._pods:
            return Read(own)
        return Read(None, self._source.memory_limit(uuid, str(directory.parent)))
