"""Reads back, for containers that the library limits, whether it is loaded and what it enforces. Its calls block."""

from collections.abc import Mapping
from pathlib import Path

import structlog

from deviceplugin import cgroups
from deviceplugin.cgroups import Group
from deviceplugin.isolation.checks import Key, Limited, Read
from deviceplugin.library import proof, reader
from deviceplugin.library.region import Region, RegionError
from deviceplugin.library.regions import Owner, Regions
from deviceplugin.machine import SourceError
from deviceplugin.usage.processes import Processes

log = structlog.get_logger()


class LibraryProver:
    """Proof by the regions, and by the driver's list of processes for containers without one."""

    def __init__(self, regions: Regions, processes: Processes) -> None:
        self._regions, self._processes = regions, processes

    def read(self, wanted: Mapping[Key, Limited], groups: Mapping[Group, Path]) -> dict[Key, dict[str, Read]]:
        """The limits in force by container and GPU. `groups`: the directories of control groups."""
        running = self._running()
        found = {}
        for key, given in wanted.items():
            region, written = self._region(Owner(key[0], given.container))
            directory = groups.get(Group(*key))
            users = None
            if running is not None and directory is not None:
                own = cgroups.processes(directory)
                users = {uuid for uuid, pids in running.items() if not own.isdisjoint(pids)}
            shown = proof.limits(given, region, written, users)
            found[key] = {uuid: Read(limit) for uuid, limit in shown.items()}
        return found

    def _region(self, owner: Owner) -> tuple[Region | None, float]:
        try:
            return reader.read(self._regions.path(owner))
        except (RegionError, OSError) as error:
            log.debug("region_not_read", uid=owner.uid, container=owner.container, error=str(error))
            return None, 0.0

    def _running(self) -> dict[str, frozenset[int]] | None:
        """The processes on each GPU, None if the driver does not tell them."""
        try:
            samples = self._processes.read()
        except SourceError as error:
            log.debug("processes_not_read", error=str(error))
            return None
        return {each.uuid: frozenset(process.pid for process in each.processes) for each in samples}
