"""When a GPU is healthy, sick or gone: a pure state machine, with `now` in seconds of a monotonic clock.

A GPU becomes sick by a critical error (XID) that is not ignored, or while it does not answer or a recovery action is
pending. It is healthy again once the cool-down has passed since the last of these. A GPU that the machine no longer
shows is gone, until that GPU or another one in its place appears. A MIG instance is sick with its GPU. One that was
destroyed is gone as long as a pod holds it.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from deviceplugin.machine import Gpu, Machine, Xid
from protos.contract import mig
from protos.contract.inventory import HEALTHY

IGNORED_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of the program that ran on the GPU rather than of the GPU. Source: NVIDIA k8s-device-plugin."""
COOL_DOWN_S = 300.0
GONE = "gone"


class Health:
    """The health of each GPU seen so far, by UUID."""

    def __init__(self, ignored: Iterable[int] = IGNORED_XIDS, cool_down: float = COOL_DOWN_S) -> None:
        self.ignored, self.cool_down = frozenset(ignored), cool_down
        self._sick: dict[str, tuple[str, float]] = {}
        self._seen: dict[str, Gpu] = {}
        self._lost: frozenset[str] = frozenset()

    def step(self, machine: Machine, xids: Iterable[Xid], now: float, held: Collection[str] = ()) -> Machine:
        """Take in a reading and the errors since the last one; returns the machine with the GPUs that are gone.

        `held` are the UUIDs that pods hold.
        """
        lost = self._missing(machine.cards)
        lost += self._destroyed((*machine.gpus, *lost), {gpu.uuid for gpu in lost}, held)
        gpus = (*machine.gpus, *lost)
        self._lost = frozenset(gpu.uuid for gpu in lost)
        self._seen = {gpu.uuid: gpu for gpu in gpus}
        self._sick = {uuid: (why, since) for uuid, (why, since) in self._sick.items() if now - since < self.cool_down}
        for xid in xids:
            if xid.code not in self.ignored:
                self._mark([xid.uuid] if xid.uuid else self._seen, f"xid-{xid.code}", now)
        for gpu in machine.gpus:
            if gpu.trouble:
                self._mark([gpu.uuid], gpu.trouble, now)
        self._mark(self._lost, "was-gone", now)
        return msgspec.structs.replace(machine, gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)))

    def _missing(self, gpus: tuple[Gpu, ...]) -> list[Gpu]:
        """The GPUs that were seen and are not shown, unless a new one sits in their place.

        A driver that starts without a GPU may renumber the others. Then the lost GPU gets an index after theirs, since
        indexes are distinct. Source: NVML API reference, nvmlDeviceGetHandleByIndex.
        """
        present = {gpu.uuid for gpu in gpus}
        places = {_place(gpu) for gpu in gpus if gpu.uuid not in self._seen}
        indexes = {gpu.index for gpu in gpus}
        missing = []
        for uuid, gpu in self._seen.items():
            if gpu.profile or uuid in present or _place(gpu) in places:
                continue
            index = gpu.index if gpu.index not in indexes else max(indexes) + 1
            indexes.add(index)
            missing.append(msgspec.structs.replace(gpu, index=index))
        return missing

    def _destroyed(self, here: Sequence[Gpu], lost: Collection[str], held: Collection[str]) -> list[Gpu]:
        """The instances that were seen and are not shown, if pods hold them or their GPU is among the `lost`.

        None stays of a GPU that is not in MIG mode any more.
        """
        by_uuid, indexes = {gpu.uuid: gpu for gpu in here}, {gpu.index for gpu in here}
        missing = []
        for uuid, gpu in self._seen.items():
            parent = by_uuid.get(gpu.parent)
            if uuid in by_uuid or parent is None or not parent.mig or not (uuid in held or gpu.parent in lost):
                continue
            free = (index for index in mig.indexes(parent.index) if index not in indexes)
            index = next(free, None) if mig.gpu_of(gpu.index) != parent.index or gpu.index in indexes else gpu.index
            if index is not None:
                indexes.add(index)
                missing.append(msgspec.structs.replace(gpu, index=index))
        return missing

    def silent(self, why: str, now: float) -> None:
        """Mark all GPUs sick: the machine could not be read."""
        self._mark(self._seen, why, now)

    def of(self, gpu: Gpu) -> str:
        """The health of this GPU as the inventory writes it."""
        if gpu.uuid in self._lost:
            return GONE
        for uuid in (gpu.uuid, gpu.parent):
            if uuid in self._sick:
                return f"sick:{self._sick[uuid][0]}"
        return "mig" if gpu.mig else HEALTHY

    def _mark(self, uuids: Iterable[str], why: str, now: float) -> None:
        for uuid in uuids:
            self._sick[uuid] = (why, now)


def _place(gpu: Gpu) -> str:
    """Where the GPU sits: its PCI bus ID, or its index if that is unknown."""
    return gpu.pci or str(gpu.index)
