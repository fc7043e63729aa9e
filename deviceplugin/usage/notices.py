"""Tells pods that a container uses more GPU memory than it was promised, or holds GPUs and does nothing on them.

Each is told once, and again after it was different meanwhile. Nobody is stopped for it.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from deviceplugin.usage.accounting import Key
from protos.contract import mig
from protos.contract.measured import Use
from protos.kube import errors, events

log = structlog.get_logger()

AT_ONCE = 10
"""Events of one look; the others come with the next."""
GIB = 2**30
MINUTE = 60


class Notice(NamedTuple):
    """One thing that is told: its reason, of whom it is true, and the sentence."""

    reason: str
    holds: Callable[[Use], bool]
    sentence: Callable[[Use], str]


def overuse(use: Use) -> str:
    """What the user of a pod reads that takes more than promised."""
    used, promised = f"{(use.used or 0) / GIB:.1f} GiB", f"{use.promised / GIB:.1f} GiB"
    return (
        f"container {use.container} uses {used} of GPU {mig.shown(use.gpu)}, and was promised {promised}: request "
        "more, or let the program keep to GANGSHARE_GPU_MEM_MIB"
    )


def idle(use: Use) -> str:
    """What the user of an idle pod reads."""
    return (
        f"container {use.container} holds {use.promised / GIB:.1f} GiB of GPU {mig.shown(use.gpu)} and did nothing "
        f"on it for {(use.idle or 0) / MINUTE:.0f} minutes: end the pod if it is done"
    )


OVERUSE = Notice("GpuMemoryOveruse", lambda use: use.overuse > 0, overuse)


def idle_for(least: float) -> Notice:
    """The notice about containers that were idle for so many seconds."""
    return Notice("GpuIdle", lambda use: bool(use.promised) and use.idle is not None and use.idle >= least, idle)


class Notices:
    """Remembers who was told what."""

    def __init__(self, recorder: events.Recorder, notices: Iterable[Notice]) -> None:
        self._recorder = recorder
        self._told: dict[Notice, set[Key]] = {notice: set() for notice in notices}

    async def tell(self, uses: tuple[Use, ...]) -> int:
        """Post what is new; returns the number of Events."""
        posted = 0
        for notice, told in self._told.items():
            true = {Key(use.uid, use.container, use.uuid): use for use in uses if notice.holds(use)}
            told.intersection_update(true)
            for key in [key for key in true if key not in told][: AT_ONCE - posted]:
                if await self._post(notice, true[key]):
                    told.add(key)
                    posted += 1
        return posted

    async def _post(self, notice: Notice, use: Use) -> bool:
        """Whether it was written. It is not if it failed, or if this pod was told the same of another GPU just now."""
        about = events.Reference(api_version="v1", kind="Pod", name=use.pod, namespace=use.namespace, uid=use.uid)
        try:
            return await self._recorder.post(about, notice.reason, notice.sentence(use), kind="Warning")
        except errors.ApiError as error:
            log.warning("event_not_written", pod=f"{use.namespace}/{use.pod}", reason=notice.reason, error=str(error))
            return False
