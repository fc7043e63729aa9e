"""The MIG instances that can be made on demand on the GPUs of a node, as GPUs of its books.

Each possible instance is an entry of the books, whether it exists or not. Entries of one GPU that overlap exclude each
other: while a pod has one, the others are blocked. Source: NVML, `nvmlDeviceGetGpuInstancePossiblePlacements`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from protos.contract import mig
from protos.contract.gpu_book import GpuBook
from protos.contract.inventory import HEALTHY, IN_MIG_MODE, Gpu, Instance, Inventory, Layout


class OnDemand:
    """All that can be made on the node of an inventory."""

    def __init__(self, inventory: Inventory) -> None:
        gpus = {gpu.index: gpu for gpu in inventory.gpus}
        self.gpus = tuple(gpus[index].uuid for layout in inventory.layouts for index in layout.gpus)
        """The UUIDs of the GPUs."""
        found = [each for layout in inventory.layouts for index in layout.gpus for each in _of(gpus[index], layout)]
        self.instances = tuple(sorted(found, key=lambda each: each.index))
        self._rivals: dict[str, tuple[str, ...]] = {}
        """By instance, as needed."""

    def rivals(self, name: str) -> tuple[str, ...]:
        """The instances that cannot exist beside the one with this name, which the inventory may have no more."""
        found = self._rivals.get(name)
        if found is None:
            found = rivals(name, self.instances)
            if len(self._rivals) < len(self.instances):
                self._rivals[name] = found
        return found

    def note(self, name: str, gpus: Mapping[str, GpuBook], sign: int) -> None:
        """Note that a pod has, or no longer has, an instance: on its GPU, and on all that cannot exist beside it."""
        place = mig.place(name)
        parent = gpus.get(place.gpu) if place is not None else None
        profile = mig.profile(place.profile) if place is not None else None
        if parent is not None and profile is not None:
            parent.cut += sign * profile.slices
            for rival in self.rivals(name):
                gpus[rival].blocked += sign

    def possible(self, gpus: Mapping[str, GpuBook]) -> list[Instance]:
        """What can be made now, as many of each profile as the GPUs can have at the same time."""
        return at_once(each for each in self.instances if gpus[each.uuid].idle)

    def loss(self, name: str, gpus: Mapping[str, GpuBook]) -> int:
        """Compute slices of the free instances that could no longer be made beside this one."""
        return sum(gpus[rival].gpu.slices for rival in self.rivals(name) if gpus[rival].idle)


@lru_cache(maxsize=1024)
def _of(gpu: Gpu, layout: Layout) -> tuple[Instance, ...]:
    """What can be made of one GPU."""
    ranks: Counter[tuple[int, int]] = Counter()
    found = []
    for possible in sorted(layout.profiles, key=lambda each: each.profile):
        for start in possible.starts:
            rank = ranks[start, possible.size]
            ranks[start, possible.size] += 1
            if rank < mig.ALIKE:
                found.append(
                    Instance(
                        index=mig.place_index(gpu.index, start, possible.size, rank),
                        uuid=mig.Place(gpu.uuid, possible.profile, start, possible.size).name,
                        mem=possible.mem,
                        minor=gpu.minor,
                        model=gpu.model,
                        mem_mib=possible.mem_mib,
                        clock_mhz=gpu.clock_mhz,
                        cc=gpu.cc,
                        numa=gpu.numa,
                        pci=gpu.pci,
                        health=HEALTHY if gpu.health == IN_MIG_MODE else gpu.health,
                        mig=possible.profile,
                        most=possible.most,
                    )
                )
    return tuple(found)


def rivals(name: str, among: Iterable[Instance]) -> tuple[str, ...]:
    """The names of the instances that cannot exist beside the one with this name, which need not be among them."""
    own = mig.place(name)
    return () if own is None else tuple(each.uuid for each in among if each.uuid != name and _excludes(own, each))


def _excludes(own: mig.Place, other: Instance) -> bool:
    place = mig.place(other.uuid)
    if place is None or place.gpu != own.gpu:
        return False
    return own.overlaps(place) or (other.most == 1 and place.profile == own.profile)


def at_once(free: Iterable[Instance]) -> list[Instance]:
    """As many of these as each profile for itself can have at the same time, in index order."""
    kept: list[Instance] = []
    of: dict[tuple[str, str], list[mig.Place]] = {}
    for each in sorted(free, key=lambda each: each.index):
        place = mig.place(each.uuid)
        others = of.setdefault((place.gpu, place.profile), []) if place is not None else []
        if place is not None and len(others) < each.most and not any(map(place.overlaps, others)):
            others.append(place)
            kept.append(each)
    return kept
