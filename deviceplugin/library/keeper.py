"""Gives containers their regions, and keeps these as long as their pods: also over restarts and reboots."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import structlog

from deviceplugin import cgroups
from deviceplugin.identify import RefusedError
from deviceplugin.library.contract import MOST_GPUS, Given
from deviceplugin.library.regions import Owner, Regions
from protos.contract.allocation import Share
from protos.contract.inventory import Inventory
from protos.contract.reason import Reason

log = structlog.get_logger()

LOOK_S = 10.0
AFTER_S = 1.0
"""So much older than a look must be what it removes: a pod may come meanwhile."""


class Keeper:
    """The regions of one node."""

    def __init__(
        self,
        regions: Regions,
        library: Path,
        groups: Path,
        owners: Callable[[], Collection[Owner]],
        pods: Callable[[], Collection[str] | None],
        *,
        caps_compute: bool,
    ) -> None:
        """`owners`: the containers that were given the library; `pods`: UIDs that are not gone, None if unknown.

        `groups` is the root of the host's control groups. With `caps_compute` slices cap compute.
        """
        self._regions, self._library, self._groups = regions, library, groups
        self._owners, self._pods, self._caps_compute = owners, pods, caps_compute
        self._trouble = ""

    async def give(self, owner: Owner, shares: Sequence[Share], mib: int, inventory: Inventory) -> Given:
        """What the container gets, once its region is there; raises RefusedError."""
        gpus = len({share.uuid for share in shares})
        if gpus > MOST_GPUS:
            raise _refused(f"the library takes {MOST_GPUS} GPUs of a container, and it has parts of {gpus}")
        try:
            await asyncio.to_thread(self._regions.make, owner)
        except OSError as error:
            raise _refused(f"its region for the library cannot be made ({error.strerror})") from error
        slices = min(share.slices for share in shares)
        percent = min(100, -(-slices * 100 // inventory.slices_per_gpu)) if self._caps_compute else 0
        return Given(
            gpus=gpus,
            mib=mib,
            percent=percent,
            library=self._library,
            region=self._regions.path(owner),
            locks=self._regions.locks,
        )

    async def run(self) -> None:
        """Keep the regions for ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Make regions that are missing, and remove those of pods that are gone."""
        before = time.time() - AFTER_S
        owners, pods = self._owners(), self._pods()
        try:
            removed = await asyncio.to_thread(self._look, owners, pods, before)
        except OSError as error:
            trouble, self._trouble = self._trouble, str(error)
            if trouble != self._trouble:
                log.warning("regions_not_kept", error=str(error))
            return
        self._trouble = ""
        if removed:
            log.info("regions_removed", count=removed)

    def _look(self, owners: Collection[Owner], pods: Collection[str] | None, before: float) -> int:
        self._regions.complete(owners)
        if pods is None or not cgroups.shows_pods(self._groups):
            return 0
        running = {group.pod for group in cgroups.containers(self._groups)}  # also of pods that were deleted by force
        return self._regions.sweep({*pods, *running}, before)


def _refused(why: str) -> RefusedError:
    return RefusedError(Reason("NoIsolation", "this node cannot limit the container's memory", why))
