"""The answers of this node: for each pod, which GPUs each of its containers has.

The GPUs of all containers of a pod are fixed when the first container is answered. At start the record is rebuilt from
the kubelet's checkpoint, which also has devices that other plugins gave (NVIDIA's whole GPUs and MIG instances,
gpushare's memory).
"""

from collections.abc import Iterable, Mapping

from deviceplugin import devices
from deviceplugin.checkpoint import Entry
from deviceplugin.devices import Sharing
from deviceplugin.library import contract
from protos.contract import names
from protos.contract.inventory import Inventory
from protos.contract.selection import is_number

Given = Mapping[str, tuple[str, ...]]
"""The UUIDs of each container's GPUs, by container name."""


class Record:
    """Answers by pod UID. Not shared between threads."""

    def __init__(self) -> None:
        self._answered: dict[str, dict[tuple[str, str], frozenset[str]]] = {}
        """The device IDs of each container and resource."""
        self._given: dict[str, dict[str, tuple[str, ...]]] = {}
        self._limits: dict[str, dict[str, int]] = {}
        self._resized: dict[str, dict[str, int]] = {}
        """Limits that were changed while the pod runs."""
        self._by_library: dict[str, dict[str, int]] = {}
        self._foreign: set[str] = set()
        self._refused: set[str] = set()

    def load(self, entries: Iterable[Entry], inventory: Inventory, sharing: Sharing) -> frozenset[str]:
        """Take over the kubelet's checkpoint; returns the resources that another plugin gave to pods new to us."""
        foreign = set()
        for entry in entries:
            if not sharing.counts(entry.resource):
                continue
            self.note(entry.uid, entry.container, entry.resource, entry.ids)
            self.limit(entry.uid, entry.container, _limit(entry))
            if names.ENV_MEM_MIB in entry.envs:
                self.limit_by_library(entry.uid, entry.container, contract.limit_in(entry.envs))
            gpus = _gpus(entry, inventory, sharing.resources)
            if gpus:
                self._given.setdefault(entry.uid, {}).setdefault(entry.container, gpus)
                if names.ENV_MEM_MIB not in entry.envs and entry.uid not in self._foreign:
                    foreign.add(entry.resource)
                    self._foreign.add(entry.uid)
        return frozenset(foreign)

    def recall(self, resource: str, entries: Iterable[Entry]) -> None:
        """Keep only these answers of a resource: a restarted kubelet knows no others, and asks again for them.

        A pod whose refusal the kubelet had not reported yet may be admitted again, so refusals are dropped.
        """
        kept = {(entry.uid, entry.container) for entry in entries if entry.resource == resource}
        for uid, answered in self._answered.items():
            left = {(c, r): ids for (c, r), ids in answered.items() if r != resource or (uid, c) in kept}
            self._answered[uid] = left
        self._refused.clear()

    def fix(self, uid: str, given: Given) -> None:
        """Fix the GPUs of a pod's containers, at its first answer."""
        self._given[uid] = {**given, **self._given.get(uid, {})}

    def note(self, uid: str, container: str, resource: str, ids: Iterable[str] = ()) -> None:
        """Note that an Allocate of these device IDs was answered for this container and resource."""
        self._answered.setdefault(uid, {})[container, resource] = frozenset(ids)

    def having(self, resource: str, ids: Iterable[str]) -> list[tuple[str, str]]:
        """UID and container of those that got exactly these device IDs."""
        wanted = frozenset(ids)
        return [
            (uid, container)
            for uid, answered in self._answered.items()
            for (container, of), got in answered.items()
            if of == resource and got == wanted
        ]

    def limit(self, uid: str, container: str, mib: int) -> None:
        """Note the memory limit in an answer, in MiB for each GPU; 0 is none. The kubelet keeps the first."""
        if mib:
            self._limits.setdefault(uid, {}).setdefault(container, mib)

    def limits(self, uid: str) -> Mapping[str, int]:
        """The memory limits of the pod's containers that have one."""
        return {**self._limits.get(uid, {}), **self._resized.get(uid, {})}

    def resize(self, uid: str, mib: Mapping[str, int]) -> None:
        """Note other memory limits of containers that were given one, in MiB for each GPU."""
        had = self._limits.get(uid, {})
        self._resized[uid] = {**self._resized.get(uid, {}), **{name: n for name, n in mib.items() if name in had}}

    def was_resized(self, uid: str) -> bool:
        """Whether limits of the pod were changed while it runs."""
        return uid in self._resized

    def limit_by_library(self, uid: str, container: str, mib: int) -> None:
        """Note the same where a library in the container is to limit it, not the driver."""
        if mib:
            self._by_library.setdefault(uid, {}).setdefault(container, mib)

    def limits_by_library(self, uid: str) -> Mapping[str, int]:
        """The memory limits of the pod's containers that a library limits."""
        return self._by_library.get(uid, {})

    def refuse(self, uid: str) -> None:
        """Note that an Allocate of this pod was refused: the kubelet has failed it for good."""
        self._refused.add(uid)

    def answered(self, uid: str, container: str, resource: str) -> bool:
        return (container, resource) in self._answered.get(uid, ())

    def refused(self, uid: str) -> bool:
        return uid in self._refused

    def given(self, uid: str) -> Given:
        """The GPUs of the pod's containers, empty before its first answer."""
        return self._given.get(uid, {})

    def taken_over(self, uid: str) -> bool:
        """Whether another plugin gave the pod its GPUs."""
        return uid in self._foreign

    def in_use(self) -> frozenset[str]:
        """The UUIDs of all GPUs and instances that pods have."""
        return frozenset(uuid for given in self._given.values() for uuids in given.values() for uuid in uuids)

    def uids(self) -> frozenset[str]:
        return frozenset(self._answered) | self._given.keys() | self._refused

    def forget(self, uid: str) -> None:
        """Drop a pod that left the node."""
        self._answered.pop(uid, None)
        self._given.pop(uid, None)
        self._limits.pop(uid, None)
        self._resized.pop(uid, None)
        self._by_library.pop(uid, None)
        self._foreign.discard(uid)
        self._refused.discard(uid)


def _limit(entry: Entry) -> int:
    """The memory limit in an answer of ours, 0 without one."""
    text = entry.envs.get(names.MEMORY_LIMIT, "")
    return int(text) if names.ENV_MEM_MIB in entry.envs and is_number(text) else 0


def _gpus(entry: Entry, inventory: Inventory, resources: names.Resources) -> tuple[str, ...]:
    """The UUIDs that an answer means, none where they are unknown."""
    if names.ENV_MEM_MIB in entry.envs:
        if places := entry.envs.get(names.ENV_PLACES, ""):
            return tuple(places.split(","))
        visible = entry.envs.get(names.VISIBLE_DEVICES, "")  # of versions without a variable of our own
        return tuple(part for part in entry.envs.get(names.ENV_UUIDS, visible).split(",") if part)
    if names.ALIYUN_IDX in entry.envs:
        minors = entry.envs[names.ALIYUN_IDX].split(",")
        return tuple(gpu.uuid for gpu in inventory.gpus if str(gpu.minor) in minors)
    if entry.resource not in (resources.mem, resources.slice):
        return tuple(dict.fromkeys(devices.gpu_of(device) for device in sorted(entry.ids)))
    return ()
