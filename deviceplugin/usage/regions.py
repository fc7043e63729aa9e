"""What the regions of a library say of use, where the driver does not tell the memory of processes.

A container writes its region itself, so this counts nowhere else.
"""

from collections.abc import Iterable

import msgspec

from deviceplugin.library import reader
from deviceplugin.library.region import RegionError
from deviceplugin.library.regions import Owner, Regions
from protos.contract.measured import Use


def filled(uses: Iterable[Use], regions: Regions) -> tuple[Use, ...]:
    """These rows, with the use that regions tell in place of an unknown one. Blocks."""
    return tuple(_filled(use, regions) if use.used is None and use.uid and use.processes else use for use in uses)


def _filled(use: Use, regions: Regions) -> Use:
    try:
        region, _ = reader.read(regions.path(Owner(use.uid, use.container)))
    except (RegionError, OSError):
        return use
    told = (device.used for device in region.devices if device.uuid == use.uuid)
    return msgspec.structs.replace(use, used=next(told, None))
