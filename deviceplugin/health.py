"""When a GPU is well, sick or gone: a pure state machine, `now` comes in as seconds that only grow.

A GPU falls sick by a critical error (XID) that is not ignored, or while it does not answer or a recovery action is
pending. It is well again when none of that is so and the cool-down has passed since the last of it. A GPU that the
machine no longer shows is gone until it, or another one in its place, is seen.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from deviceplugin.machine import Gpu, Machine, Xid
from protos.contract.inventory import HEALTHY

GONE = "gone"
MIG = "mig"
IGNORED_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of the program that ran on the GPU rather than of the GPU. Source: NVIDIA k8s-device-plugin."""
COOL_DOWN_S = 300.0


class Health:
    """What is known of each GPU's health, by UUID."""

    def __init__(self, ignored: Iterable[int] = IGNORED_XIDS, cool_down: float = COOL_DOWN_S) -> None:
        self.ignored, self.cool_down = frozenset(ignored), cool_down
        self._sick: dict[str, tuple[str, float]] = {}
        self._seen: dict[str, Gpu] = {}
        self._lost: frozenset[str] = frozenset()

    def step(self, machine: Machine, xids: Iterable[Xid], now: float) -> Machine:
        """Take in a reading and the errors since the last; answers the machine with those GPUs that are gone."""
        lost = self._missing(machine.gpus)
        self._lost = frozenset(gpu.uuid for gpu in lost)
        self._seen = {gpu.uuid: gpu for gpu in (*machine.gpus, *lost)}
        self._sick = {uuid: (why, since) for uuid, (why, since) in self._sick.items() if now - since < self.cool_down}
        for xid in xids:
            if xid.code not in self.ignored:
                self._mark([xid.uuid] if xid.uuid else self._seen, f"xid-{xid.code}", now)
        for gpu in machine.gpus:
            if gpu.trouble:
                self._mark([gpu.uuid], gpu.trouble, now)
        self._mark(self._lost, "was-gone", now)
        gpus = sorted((*machine.gpus, *lost), key=lambda gpu: gpu.index)
        return Machine(gpus=tuple(gpus), links=machine.links, fabric=machine.fabric)

    def _missing(self, gpus: tuple[Gpu, ...]) -> list[Gpu]:
        """The GPUs that were seen and are not shown, unless a new one sits in their place.

        A driver that starts without a GPU may number the others anew: then the one that is gone gets an index behind
        theirs, since indexes are distinct. Source: NVML API reference, nvmlDeviceGetHandleByIndex.
        """
        present = {gpu.uuid for gpu in gpus}
        places = {_place(gpu) for gpu in gpus if gpu.uuid not in self._seen}
        taken = {gpu.index for gpu in gpus}
        found = []
        for uuid, gpu in self._seen.items():
            if uuid in present or _place(gpu) in places:
                continue
            index = gpu.index if gpu.index not in taken else max(taken) + 1
            taken.add(index)
            found.append(msgspec.structs.replace(gpu, index=index))
        return found

    def silent(self, why: str, now: float) -> None:
        """The machine could not be read: every GPU known is sick."""
        self._mark(self._seen, why, now)

    def of(self, gpu: Gpu) -> str:
        """The inventory's word for this GPU's health."""
        if gpu.uuid in self._lost:
            return GONE
        if gpu.uuid in self._sick:
            return f"sick:{self._sick[gpu.uuid][0]}"
        return MIG if gpu.mig else HEALTHY

    def _mark(self, uuids: Iterable[str], why: str, now: float) -> None:
        for uuid in uuids:
            self._sick[uuid] = (why, now)


def _place(gpu: Gpu) -> str:
    """Where the GPU sits: its PCI bus ID, or its index where that is unknown."""
    return gpu.pci or str(gpu.index)
