"""Since when a pod has used none of its GPUs: the pod annotation `gangshare.io/idle`.

The measuring process of the pod's node writes it through the status subresource, and takes it away when the pod uses a
GPU. It is believed from that process alone, and only until a deadline, which the process moves on: so what a process
that ended has left behind is soon forgotten.
"""

from __future__ import annotations

import msgspec

from protos.contract import codec, names
from protos.contract.objects import Pod
from protos.contract.ownership import owners, read
from protos.contract.timestamps import epoch_seconds

WRITER = (names.USAGE, "status")
"""(manager, subresource) of the measuring process."""


class Idle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two times in RFC 3339, in UTC: `2025-01-31T12:00:00Z`."""

    v: int
    since: str
    until: str
    """It is believed until then."""

    def __post_init__(self) -> None:
        epoch_seconds(self.since)
        epoch_seconds(self.until)


_annotation = codec.Annotation(names.IDLE, Idle)
encode = _annotation.encode


def of(pod: Pod) -> Idle | None:
    """What the measuring process says of the pod, None if it says nothing or if that cannot be read."""
    text = pod.metadata.annotations.get(names.IDLE)
    if text is None or set(owners(read(pod.metadata.managed_fields), names.IDLE)) != {WRITER}:
        return None
    try:
        return _annotation.decode(text)
    except codec.ContractError:
        return None
