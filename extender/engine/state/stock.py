"""The GPUs of the cluster: how many of each kind there are, and how many have no allocation.

Updates cost only the nodes that changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from functools import lru_cache
from itertools import islice

import msgspec

from extender.engine.state.likeness import COMPARED, meant
from extender.engine.types.amounts import add
from protos.contract import links, mig
from protos.contract.books import NodeBooks
from protos.contract.inventory import HEALTHY, IN_MIG_MODE, Gpu, Instance, Inventory, Link
from protos.contract.on_demand import OnDemand, at_once
from protos.contract.selection import WILD, Selection, matches, suits

REMEMBERED = 1024
"""Cached selections."""
NAMED = 5
"""Models, or MIG profiles, named in a sentence; the others are counted."""
MOST_UUIDS = 2000
"""UUIDs up to which globs are compared with them."""

GpuKind = Gpu
"""A GPU without its index, UUID, minor number and location."""
Held = tuple["Machine", tuple[str, ...]]
"""The machine of a node, and its UUIDs in lower case, in index order."""


def kind(gpu: Gpu) -> GpuKind:
    """The kind of a GPU, or of a MIG instance. A GPU in MIG mode is of a kind of its own."""
    health = IN_MIG_MODE if gpu.health == IN_MIG_MODE else HEALTHY
    like = {field: getattr(gpu, field) for field in ("mem", "model", "mem_mib", "clock_mhz", "cc", "mig")}
    if isinstance(gpu, Instance):
        return Instance(index=0, uuid="-", **like)
    return Gpu(index=0, uuid="-", health=health, **like)


class Machine(msgspec.Struct, frozen=True, cache_hash=True):
    """The GPUs of a node, without those in MIG mode; nodes that are built alike share one object."""

    gpus: tuple[tuple[int, int, GpuKind], ...]
    """Index, NUMA node, kind. Of instances on demand there are as many as each profile can have at the same time."""
    links: tuple[Link, ...]

    def joins(self, wanted: Selection, count: int) -> bool:
        """Whether it has so many GPUs joined as wanted, if all were free; True if that is too expensive to check."""
        able = tuple(index for index, _, kind in self.gpus if not kind.mig and suits(wanted, kind))
        topology = links.topology(self.links, tuple((index, numa) for index, numa, _ in self.gpus))
        best = topology.best(able, count, (), wanted.link, wanted.numa_local)
        return best is not None or count <= len(able) > links.EXACT

    def made(self, accepted: Collection[GpuKind], worth: Callable[[GpuKind], int]) -> int:
        """The most that accepted instances on demand are worth, if each GPU has those of one profile."""
        of: dict[int | None, Counter[GpuKind]] = {}
        for index, _, built in self.gpus:
            if isinstance(built, Instance) and built in accepted:
                of.setdefault(mig.gpu_of(index), Counter())[built] += worth(built)
        return sum(max(each.values()) for each in of.values())


_machine = lru_cache(maxsize=4096)(Machine)
"""One object for equal machines."""


class Stock:
    """All GPUs of all nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, Held] = {}
        self._machines: Counter[Machine] = Counter()
        self._uuids: dict[str, GpuKind] = {}
        self.gpus: Counter[GpuKind] = Counter()
        self.free: Counter[GpuKind] = Counter()
        """GPUs with no allocation, as last counted."""
        self._free: dict[str, tuple[tuple[GpuKind, int], ...]] = {}
        """The same by node."""
        self._uncounted: dict[str, None] = {}
        self._matching: dict[Selection, tuple[set[GpuKind], int]] = {}
        """By selection: the accepted kinds, and the number of nodes that have them."""
        self.version = 0
        """Counts changes of the GPUs."""
        self.counts = 0
        """Counts changes of the GPUs and of `free`."""

    # -- changes

    def put(self, node: str, found: Inventory | None) -> None:
        """Set the GPUs of a node, None if it is gone."""
        self.changed(node)
        before = self._nodes.pop(node, None)
        if found is not None:
            gpus = [gpu for gpu in found.gpus if gpu.health != IN_MIG_MODE]
            if found.layouts:
                gpus += at_once(OnDemand(found).instances)
            machine = _machine(tuple((gpu.index, gpu.numa, kind(gpu)) for gpu in gpus), found.links)
            self._nodes[node] = machine, tuple(gpu.uuid.lower() for gpu in gpus)
        now = self._nodes.get(node)
        if before != now:
            self._add(before, -1)
            self._add(now, 1)
            self._matching.clear()
            self.version += 1
            self.counts += 1

    def _add(self, held: Held | None, sign: int) -> None:
        if held is None:
            return
        machine, uuids = held
        add(self._machines, ((machine, 1),), sign)
        add(self.gpus, ((built, 1) for _, _, built in machine.gpus), sign)
        for uuid, (_, _, built) in zip(uuids, machine.gpus, strict=True):
            if sign > 0:
                self._uuids[uuid] = built
            else:
                self._uuids.pop(uuid, None)

    def changed(self, node: str) -> None:
        """The node's bookings have changed, or whether it takes new pods."""
        self._uncounted[node] = None

    def recount(self, books_of: Callable[[str], NodeBooks | None], most: int) -> None:
        """Count the free GPUs of at most so many changed nodes; `books_of` a node that takes no pods is None."""
        for name in list(islice(self._uncounted, most)):
            del self._uncounted[name]
            books, held = books_of(name), self._nodes.get(name)
            counts = books is not None and held is not None and books.inventory.state == "ready"
            now = _of_kinds(held[0], books.idle(instances=True)) if counts and books and held else ()
            before = self._free.pop(name, ())
            if now:
                self._free[name] = now
            if now != before:
                self.counts += 1
                add(self.free, before, -1)
                add(self.free, now)

    # -- queries

    def kinds(self) -> Iterator[tuple[GpuKind, int]]:
        """Each kind of GPU and the number of nodes that have it, sorted by model and memory."""

        def order(of: GpuKind) -> tuple[object, ...]:
            return of.model, of.mem_mib, of.clock_mhz, of.cc, of.mem, of.profile

        for found in sorted(self.gpus, key=order):
            yield found, self._having({found})

    def matching(self, wanted: Selection) -> tuple[int, int, int]:
        """The numbers of accepted GPUs (UUIDs ignored), of free ones among them, and of nodes that have any."""
        if wanted not in self._matching:
            if len(self._matching) >= REMEMBERED:
                self._matching.clear()
            accepted = {found for found in self.gpus if suits(wanted, found)}
            self._matching[wanted] = accepted, self._having(accepted)
        kinds, nodes = self._matching[wanted]
        made = self._made(kinds, lambda _: 1)
        every = sum(self.gpus[found] for found in kinds if not isinstance(found, Instance))
        free = sum(self.free[found] for found in kinds if not isinstance(found, Instance))
        cut = sum(self.free[found] for found in kinds if isinstance(found, Instance)) if made else 0
        return every + made, free + min(made, cut), nodes

    def amount(self, wanted: Selection) -> int:
        """The accepted GPUs (UUIDs ignored) in compute slices of MIG, of which a GPU has seven."""
        self.matching(wanted)
        kinds = self._matching[wanted][0]
        existing = sum(self.gpus[found] * found.slices for found in kinds if not isinstance(found, Instance))
        return existing + self._made(kinds, lambda found: found.slices)

    def _made(self, kinds: Set[GpuKind], worth: Callable[[GpuKind], int]) -> int:
        """What instances on demand of these kinds are worth, those of one GPU and of several profiles only once."""
        if not any(isinstance(found, Instance) for found in kinds):
            return 0
        return sum(n * machine.made(kinds, worth) for machine, n in self._machines.items())

    def models_of(self, wanted: Selection) -> Sequence[str]:
        """The models of the accepted GPUs (UUIDs ignored), by name."""
        self.matching(wanted)
        return sorted({found.model for found in self._matching[wanted][0]})

    def _having(self, kinds: set[GpuKind]) -> int:
        return sum(n for machine, n in self._machines.items() if any(built in kinds for _, _, built in machine.gpus))

    def widest(self) -> int:
        """The most GPUs of a node, MIG instances apart."""
        of_nodes = (sum(not built.mig for _, _, built in machine.gpus) for machine in self._machines)
        return max(of_nodes, default=0)

    def accepted(self, wanted: Selection) -> bool:
        """Whether a GPU is accepted; True for globs of UUIDs if there are too many UUIDs to compare."""
        if not wanted.uuids:
            return any(suits(wanted, found) for found in self.gpus)
        if any(uuid.startswith("!") or WILD & set(uuid) for uuid in wanted.uuids):
            named = (built for uuid, built in self._uuids.items() if matches(wanted.uuids, uuid))
            return len(self._uuids) > MOST_UUIDS or any(suits(wanted, built) for built in named)
        exact = (self._uuids.get(uuid.lower()) for uuid in wanted.uuids)
        return any(built is not None and suits(wanted, built) for built in exact)

    def joins(self, wanted: Selection, count: int) -> bool:
        """Whether a node has so many GPUs joined as wanted."""
        return any(machine.joins(wanted, count) for machine in self._machines)

    def has(self, wanted: tuple[str, ...] = ()) -> str:
        """The models in words, and which was probably wanted: `it has T4 ×8, V100 ×8; did you mean V100?`."""
        return self._words(lambda found: found.model or "unknown model", wanted, "models")

    def has_profiles(self, wanted: str) -> str:
        """The MIG profiles in words, and which was probably wanted."""
        return self._words(lambda found: found.profile, (wanted,), "profiles")

    def _words(self, named: Callable[[GpuKind], str], wanted: tuple[str, ...], what: str) -> str:
        counts: Counter[str] = Counter()
        for found, count in self.gpus.items():
            if name := named(found):
                counts[name] += count
        ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        more = [f"{len(ordered) - NAMED} other {what}"] if len(ordered) > NAMED else []
        listed = ", ".join([*(f"{name} ×{count}" for name, count in ordered[:NAMED]), *more]) or "none"
        near = meant(wanted, tuple(name for name, _ in ordered[:COMPARED])) if wanted else ""
        return f"it has {listed}" + (f"; did you mean {near}?" if near else "")


@lru_cache(maxsize=4096)
def _of_kinds(machine: Machine, indexes: tuple[int, ...]) -> tuple[tuple[GpuKind, int], ...]:
    """How many of these GPUs there are of each kind."""
    return tuple(Counter(built for index, _, built in machine.gpus if index in indexes).items())
