"""What was answered: for each pod, which GPUs each of its containers has. This is the truth of the devices.

A pod's GPUs are fixed for all its containers when the first of them is answered. Rebuilt at start from the kubelet's
checkpoint, which also tells of devices that other plugins gave (NVIDIA's whole GPUs, gpushare's memory).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from deviceplugin import devices
from deviceplugin.checkpoint import Entry
from protos.contract import names
from protos.contract.inventory import Inventory

Given = Mapping[str, tuple[str, ...]]
"""The UUIDs of each container's GPUs, by container name."""
Origin = Literal["answered", "taken-over"]


class Record:
    """Answers by pod UID. Not shared between threads."""

    def __init__(self) -> None:
        self._answered: dict[str, set[tuple[str, str]]] = {}
        self._given: dict[str, dict[str, tuple[str, ...]]] = {}
        self._foreign: set[str] = set()
        self._refused: set[str] = set()

    def load(self, entries: Iterable[Entry], inventory: Inventory, resources: names.Resources) -> frozenset[str]:
        """Take over what the kubelet's checkpoint says; answers the resources of which another plugin gave anew."""
        strange = set()
        for entry in entries:
            if entry.resource not in resources.all:
                continue
            self.note(entry.uid, entry.container, entry.resource)
            gpus = _gpus(entry, inventory, resources)
            if gpus:
                self._given.setdefault(entry.uid, {}).setdefault(entry.container, gpus)
                if names.ENV_MEM_MIB not in entry.envs and entry.uid not in self._foreign:
                    strange.add(entry.resource)
                    self._foreign.add(entry.uid)
        return frozenset(strange)

    def recall(self, resource: str, entries: Iterable[Entry]) -> None:
        """A kubelet that starts anew knows of a resource only these answers: it asks again for the others.

        What it refused it may not have told anybody, and admit again.
        """
        kept = {(entry.uid, entry.container) for entry in entries if entry.resource == resource}
        for uid, answered in self._answered.items():
            self._answered[uid] = {(c, r) for c, r in answered if r != resource or (uid, c) in kept}
        self._refused.clear()

    def fix(self, uid: str, given: Given) -> None:
        """The GPUs of a pod's containers, from its first answer on."""
        self._given[uid] = {**given, **self._given.get(uid, {})}

    def note(self, uid: str, container: str, resource: str) -> None:
        """An Allocate was answered for this container and resource."""
        self._answered.setdefault(uid, set()).add((container, resource))

    def refuse(self, uid: str) -> None:
        """An Allocate of this pod was refused: the kubelet has failed it for good."""
        self._refused.add(uid)

    def answered(self, uid: str, container: str, resource: str) -> bool:
        return (container, resource) in self._answered.get(uid, ())

    def refused(self, uid: str) -> bool:
        return uid in self._refused

    def given(self, uid: str) -> Given:
        """What the pod's containers have, empty while nothing was answered."""
        return self._given.get(uid, {})

    def origin(self, uid: str) -> Origin:
        """Whether another plugin gave these GPUs."""
        return "taken-over" if uid in self._foreign else "answered"

    def uids(self) -> frozenset[str]:
        return frozenset(self._answered) | self._given.keys() | self._refused

    def forget(self, uids: Collection[str]) -> None:
        """These pods are no more."""
        for uid in uids:
            self._answered.pop(uid, None)
            self._given.pop(uid, None)
            self._foreign.discard(uid)
            self._refused.discard(uid)


def _gpus(entry: Entry, inventory: Inventory, resources: names.Resources) -> tuple[str, ...]:
    """The UUIDs that an answer means, none where it cannot be told."""
    if names.ENV_MEM_MIB in entry.envs:
        visible = entry.envs.get(names.VISIBLE_DEVICES, "")  # so it was before there was a variable of our own
        return tuple(part for part in entry.envs.get(names.ENV_UUIDS, visible).split(",") if part)
    if names.ALIYUN_IDX in entry.envs:
        minors = entry.envs[names.ALIYUN_IDX].split(",")
        return tuple(gpu.uuid for gpu in inventory.gpus if str(gpu.minor) in minors)
    if entry.resource in (resources.whole, resources.shared):
        return tuple(dict.fromkeys(devices.gpu_of(device) for device in sorted(entry.ids)))
    return ()
