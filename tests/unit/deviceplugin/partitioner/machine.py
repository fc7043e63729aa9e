"""A GPU whose driver makes MIG instances, and what happens if the process is killed at any step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

from deviceplugin.partitioner.journal import Journal
from deviceplugin.partitioner.partitioner import Found, Partitioner
from deviceplugin.partitioner.protocol import Device, Kind, PartitionError
from protos.contract import mig

KINDS = (
    Kind("1g.10gb", 9728, 1, tuple(range(7)), 7),
    Kind("1g.10gb+me", 9728, 1, tuple(range(7)), 1),
    Kind("2g.20gb", 19968, 2, (0, 2, 4), 3),
    Kind("3g.40gb", 40448, 4, (0, 4), 2),
    Kind("7g.80gb", 80896, 8, (0,), 1),
)


class KilledError(BaseException):
    """The process has been killed."""


class Machine:
    """The driver of one machine, which outlives the process; `step` is called before and after each change."""

    def __init__(self, *gpus: str) -> None:
        self.instances: dict[str, list[Found]] = {gpu: [] for gpu in gpus}
        self.busy: set[str] = set()
        """Names of places whose instances are in use."""
        self.failing: set[str] = set()
        """GPUs that do not tell their instances."""
        self.refuses: str = ""
        """Of `make` or `complete`: the driver refuses it."""
        self.step: Callable[[], None] = lambda: None
        self._numbers = itertools.count(1)
        self.made: list[str] = []
        self.destroyed: list[str] = []

    def place(self, place: mig.Place) -> Found:
        """Put an instance there, as an operator does by hand."""
        number = next(self._numbers)
        found = Found(place, number, Device(f"MIG-{number}", number, 0))
        self.instances[place.gpu].append(found)
        return found

    def gpus(self) -> Mapping[str, tuple[Kind, ...]]:
        return dict.fromkeys(self.instances, KINDS)

    def found(self, gpu: str) -> list[Found]:
        if gpu in self.failing:
            raise PartitionError("it does not answer")
        return [Found(each.place, each.gi, each.device) for each in self.instances[gpu]]

    def make(self, place: mig.Place) -> int:
        self.step()
        if self.refuses == "make" or any(place.overlaps(each.place) for each in self.instances[place.gpu]):
            raise PartitionError("insufficient resources")
        number = next(self._numbers)
        self.instances[place.gpu].append(Found(place, number, None))
        self.made.append(place.name)
        self.step()
        return number

    def complete(self, place: mig.Place, gi: int) -> Device:
        self.step()
        if self.refuses == "complete":
            raise PartitionError("insufficient resources")
        each = next(each for each in self.instances[place.gpu] if each.gi == gi)
        assert each.device is None
        each.device = Device(f"MIG-{gi}", gi, 0)
        self.step()
        return each.device

    def destroy(self, gpu: str, gi: int) -> None:
        self.step()
        each = next(each for each in self.instances[gpu] if each.gi == gi)
        if each.place.name in self.busy:
            raise PartitionError("in use by another client")
        self.instances[gpu].remove(each)
        self.destroyed.append(each.place.name)
        self.step()

    def there(self) -> set[str]:
        """The places of all instances."""
        return {each.place.name for every in self.instances.values() for each in every}


class KilledJournal(Journal):
    """One whose process may be killed before and after each write."""

    def __init__(self, folder: Path, step: Callable[[], None]) -> None:
        super().__init__(folder)
        self._step = step

    def _write(self, ours: dict[str, str]) -> None:
        self._step()
        super()._write(ours)
        self._step()


def partitioner(machine: Machine, folder: Path) -> Partitioner:
    """A process that has just started."""
    return Partitioner(machine, KilledJournal(folder, lambda: machine.step()))
