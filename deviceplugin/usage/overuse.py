"""Tells pods that a container uses more GPU memory than it was promised: once, until it keeps to its promise again."""

import structlog

from deviceplugin.usage.accounting import Key
from protos.contract.measured import Use
from protos.kube import errors, events

log = structlog.get_logger()

REASON = "GpuMemoryOveruse"
AT_ONCE = 10
"""Events of one look; the others come with the next."""
GIB = 2**30


class Overuse:
    """Remembers who was told."""

    def __init__(self, recorder: events.Recorder) -> None:
        self._recorder = recorder
        self._told: set[Key] = set()

    async def tell(self, uses: tuple[Use, ...]) -> int:
        """Post what is new; returns the number of Events."""
        over = {Key(use.uid, use.container, use.uuid): use for use in uses if use.overuse}
        self._told &= over.keys()
        posted = 0
        for key in [key for key in over if key not in self._told][:AT_ONCE]:
            use = over[key]
            about = events.Reference(api_version="v1", kind="Pod", name=use.pod, namespace=use.namespace, uid=use.uid)
            try:
                written = await self._recorder.post(about, REASON, sentence(use), kind="Warning")
            except errors.ApiError as error:
                log.warning("event_not_written", pod=f"{use.namespace}/{use.pod}", error=str(error))
                continue
            if written:  # otherwise another one of this pod was told a moment ago
                self._told.add(key)
                posted += 1
        return posted


def sentence(use: Use) -> str:
    """What the pod's user reads."""
    used, promised = f"{(use.used or 0) / GIB:.1f} GiB", f"{use.promised / GIB:.1f} GiB"
    return (
        f"container {use.container} uses {used} of GPU {use.gpu}, and was promised {promised}: request more, or let "
        "the program keep to GANGSHARE_GPU_MEM_MIB"
    )
