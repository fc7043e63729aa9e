"""Makes the driver have the instances that pods hold: those of ours that nobody holds go, those that lack are made.

The journal says which are ours. An instance of the operator is never touched, and what overlaps it is not offered.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

import structlog

from deviceplugin.partitioner.journal import Journal
from deviceplugin.partitioner.protocol import Answer, Device, Held, Kind, PartitionError
from protos.contract import mig
from protos.contract.bounds import MIG_HELD

log = structlog.get_logger()

ALL = "all"


class Found:
    """An instance that exists on a GPU. Without a compute instance `device` is None."""

    def __init__(self, place: mig.Place, gi: int, device: Device | None) -> None:
        self.place, self.gi, self.device = place, gi, device


def chosen(given: Collection[str], index: int, uuid: str) -> bool:
    """Whether a GPU is given over; `given` has UUIDs and indexes, or `all`."""
    return index < mig.CUT_GPUS and not {ALL, str(index), uuid}.isdisjoint(given)


class Driver(Protocol):
    """What the partitioner asks of the driver; each call blocks, and raises PartitionError."""

    def gpus(self) -> Mapping[str, tuple[Kind, ...]]:
        """The GPUs in MIG mode that are given over, by UUID, and what can be made of each if it is empty."""
        ...

    def found(self, gpu: str) -> list[Found]:
        """All instances of a GPU."""
        ...

    def make(self, place: mig.Place) -> int:
        """Make a GPU instance at this place; returns its ID."""
        ...

    def complete(self, place: mig.Place, gi: int) -> Device:
        """Make the compute instance of a GPU instance."""
        ...

    def destroy(self, gpu: str, gi: int) -> None:
        """Destroy a GPU instance with its compute instances."""
        ...


class Partitioner:
    """Makes and destroys instances on the GPUs of one driver."""

    def __init__(self, driver: Driver, journal: Journal) -> None:
        self._driver, self._journal = driver, journal

    def answer(self, held: Held) -> Answer:
        """Make it so; what cannot be done is said in the answer."""
        try:
            kinds = dict(self._driver.gpus())
            given_over = tuple(kinds)
            found = self._scan(kinds)
            self._adopt(found)
            self._tidy(found, frozenset((*held.places, *held.keep)))
            made, refused = dict[str, Device](), dict[str, str]()
            for name in held.places:
                try:
                    made[name] = self._have(name, kinds, found)
                except PartitionError as error:
                    refused[name] = str(error)
        except PartitionError as error:
            return Answer(why=str(error))
        others = [each for gpu in kinds for each in found[gpu] if each.place.name not in self._journal.ours]
        taken = [each.place for each in others]
        return Answer(
            gpus={gpu: tuple(_left(gpu, of, taken)) for gpu, of in kinds.items()},
            unread=tuple(gpu for gpu in given_over if gpu not in kinds),
            others=tuple(each.device.uuid for each in others if each.device is not None)[: MIG_HELD.most],
            made=made,
            refused=refused,
        )

    def _scan(self, kinds: dict[str, tuple[Kind, ...]]) -> dict[str, list[Found]]:
        """The instances by GPU. A GPU that does not tell them is left out of both."""
        found = {}
        for gpu in list(kinds):
            try:
                found[gpu] = self._driver.found(gpu)
            except PartitionError as error:
                del kinds[gpu]
                log.warning("instances_not_read", gpu=gpu, why=str(error))
        return found

    def _adopt(self, found: Mapping[str, list[Found]]) -> None:
        """Drop from the journal what is no instance of ours on these GPUs: gone, or replaced by the operator."""
        there = {each.place.name: each for gpu in found for each in found[gpu]}
        for name, uuid in list(self._journal.ours.items()):
            place, each = mig.place(name), there.get(name)
            if place is None or place.gpu not in found:
                continue  # the GPU does not answer now, or is not given over: what it has stays ours
            replaced = each is not None and each.device is not None and uuid and each.device.uuid != uuid
            if each is None or replaced:
                self._journal.drop(name)

    def _tidy(self, found: Mapping[str, list[Found]], held: Collection[str]) -> None:
        """Destroy those of ours that nobody holds. One that is still in use stays for the next time."""
        for gpu, every in found.items():
            for each in list(every):
                name = each.place.name
                if name in self._journal.ours and name not in held:
                    try:
                        self._destroy(each)
                    except PartitionError as error:
                        log.warning("instance_not_destroyed", place=name, why=str(error))
                    else:
                        found[gpu].remove(each)

    def _destroy(self, each: Found) -> None:
        self._driver.destroy(each.place.gpu, each.gi)
        self._journal.drop(each.place.name)
        log.info("instance_destroyed", place=each.place.name)

    def _have(self, name: str, kinds: Mapping[str, tuple[Kind, ...]], found: Mapping[str, list[Found]]) -> Device:
        """The instance at a place, made if it is not there; raises PartitionError."""
        place = mig.place(name)
        if place is None or place.gpu not in kinds:
            raise PartitionError(f"{name}: expected a place on a GPU in MIG mode that is given over")
        kind = next((each for each in kinds[place.gpu] if each.profile == place.profile), None)
        if kind is None or place.size != kind.size or place.start not in kind.starts:
            raise PartitionError(f"{name}: the driver makes no such instance there")
        for each in found[place.gpu]:
            if each.place == place and name in self._journal.ours:
                return each.device if each.device is not None else self._complete(each)
            if each.place.overlaps(place):
                raise PartitionError(f"{name}: {each.place.name} is there")
        return self._make(place, found[place.gpu])

    def _make(self, place: mig.Place, there: list[Found]) -> Device:
        self._journal.note(place.name)
        try:
            made = Found(place, self._driver.make(place), None)
        except PartitionError:
            self._journal.drop(place.name)
            raise
        there.append(made)
        try:
            device = self._complete(made)
        except PartitionError:
            self._destroy(made)
            there.remove(made)
            raise
        log.info("instance_made", place=place.name, uuid=device.uuid)
        return device

    def _complete(self, each: Found) -> Device:
        each.device = self._driver.complete(each.place, each.gi)
        self._journal.note(each.place.name, each.device.uuid)
        return each.device


def _left(gpu: str, kinds: tuple[Kind, ...], taken: Collection[mig.Place]) -> Iterator[Kind]:
    """The kinds without the places that overlap instances of others."""
    taken = [place for place in taken if place.gpu == gpu]
    for kind in kinds:
        places = (mig.Place(gpu, kind.profile, start, kind.size) for start in kind.starts)
        starts = tuple(place.start for place in places if not any(map(place.overlaps, taken)))
        used = sum(place.profile == kind.profile for place in taken)
        if starts and kind.most > used:
            yield Kind(kind.profile, kind.mem_mib, kind.size, starts, kind.most - used)
