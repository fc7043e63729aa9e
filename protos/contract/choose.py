"""The choice of GPUs on one node: pure, deterministic, used by the extender and by a plugin without extender.

The containers of a pod are seated one by one with backtracking: largest first, init containers last, if possible on
GPUs of the same pod. A container with several GPUs gets the best-linked set that fits, of GPUs of one model unless the
pod allows several. Packing prefers shared GPUs, then the fullest; spreading prefers the emptiest. Of equal idle GPUs
the one with the smallest loss of links is chosen. A MIG instance comes after shared GPUs and before idle ones when
packing, after idle GPUs when spreading, and the smallest that satisfies comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain, combinations, islice

import msgspec

from protos.contract.allocation import Share
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook, peak
from protos.contract.inventory import Instance
from protos.contract.mig import gpu_of

SET_TRIES = 64
"""Sets of GPUs tried for one container before backtracking."""
SEAT_TRIES = 48
"""Seats tried for one pod on one node, besides one for each container."""


class Choice(msgspec.Struct, frozen=True):
    """The GPUs of each container, and the pod's charge on each GPU."""

    shares: dict[str, tuple[Share, ...]]
    charges: dict[str, Demand]


Size = int | tuple[int, object]
"""What a demand depends on: the GPU's units, and the profile of a MIG instance."""
Seat = tuple[tuple[str, Demand], ...]
"""One container's GPUs (UUID, demand), in index order."""


def choose(ask: PodAsk, books: NodeBooks) -> Choice | None:
    """The GPUs for `ask` on this node; None if it does not fit (`misfit` has the reason)."""
    seats = _seats(ask, books)
    if seats is None:
        return None
    shares = {
        c.name: tuple(Share(u, books.gpus[u].gpu.index, d.mem, d.slices, d.whole) for u, d in seat)
        for c, seat in zip(ask.containers, seats, strict=True)
    }
    return Choice(shares, _charges(ask, seats))


def _seats(ask: PodAsk, books: NodeBooks) -> list[Seat] | None:
    if books.inventory.state != "ready":
        return None
    eligible = books.eligible(ask.selection)
    if len(ask.containers) == 1 and ask.containers[0].gpus == 1:
        return _single(ask, eligible, books)
    alike = alike_only(ask, books)
    if any(not _enough(container, eligible, books, alike=alike) for container in ask.containers):
        return None
    return _Seating(ask, eligible, books).run()


def alike_only(ask: PodAsk, books: NodeBooks) -> bool:
    """Whether the GPUs of each container must be chosen by model: the node has several, and the pod does not mix."""
    return books.several_models and not ask.selection.mixed


def _enough(ask: ContainerAsk, eligible: Sequence[GpuBook], books: NodeBooks, *, alike: bool) -> bool:
    """Whether enough GPUs have room for the container alone, a cheap check that rules out most nodes."""
    demands: dict[Size, Demand | None] = {}
    missing: dict[object, int] = {}
    for book in eligible:
        gpu = book.gpu
        size = (gpu.mem, gpu.mig) if gpu.mig else gpu.mem
        if size not in demands:
            demands[size] = books.demand(ask, gpu)
        demand = demands[size]
        if demand is not None and book.fits(demand):
            model = (gpu.model, gpu.mig) if alike else None
            missing[model] = missing.get(model, ask.gpus) - 1
            if not missing[model]:
                return True
    return False


def _charges(ask: PodAsk, seats: Sequence[Seat]) -> dict[str, Demand]:
    if len(seats) == 1:
        return dict(seats[0])
    return {
        uuid: peak((c, d) for c, seat in zip(ask.containers, seats, strict=True) for u, d in seat if u == uuid)
        for uuid in dict.fromkeys(u for seat in seats for u, _ in seat)
    }


def _single(ask: PodAsk, eligible: Sequence[GpuBook], books: NodeBooks) -> list[Seat] | None:
    container, spread = ask.containers[0], ask.selection.spread
    best: tuple[int, ...] | None = None
    equals: list[tuple[GpuBook, Demand]] = []
    demands: dict[Size, Demand | None] = {}
    for book in eligible:
        gpu = book.gpu
        size = (gpu.mem, gpu.mig) if gpu.mig else gpu.mem
        if size not in demands:
            demands[size] = books.demand(container, gpu)
        demand = demands[size]
        if demand is None or not book.fits(demand):
            continue
        key = preference(book, spread) if not isinstance(gpu, Instance) else _made(book, books, spread)
        if best is None or key < best:
            best, equals = key, [(book, demand)]
        elif key == best:
            equals.append((book, demand))
    if not equals:
        return None
    book, demand = equals[0]
    if len(equals) > 1 and not book.sharers and not book.gpu.mig:
        losses = books.topology.losses(books.idle())
        book, demand = min(equals, key=lambda pair: losses[pair[0].gpu.index])
    return [((book.gpu.uuid, demand),)]


def preference(book: GpuBook, spread: bool = False) -> tuple[int, ...]:
    """Sort key of GPUs, less is better; links decide between equal idle GPUs."""
    if book.gpu.mig:
        return (0 if spread else 1, int(spread), book.mem_free, book.slices_free)
    if spread:
        return (book.sharers, 0, -book.mem_free, -book.slices_free)
    return (0 if book.sharers else 2, 0, book.mem_free, book.slices_free)


def _made(book: GpuBook, books: NodeBooks, spread: bool) -> tuple[int, ...]:
    """The sort key of a MIG instance that would be made: of equal ones, that which leaves most others possible."""
    loss = books.on_demand.loss(book.gpu.uuid, books.gpus) if books.on_demand else 0
    return (*preference(book, spread), loss, book.gpu.index)


class _Seating:
    """Backtracking over the containers of one pod."""

    def __init__(self, ask: PodAsk, eligible: Sequence[GpuBook], books: NodeBooks) -> None:
        self.ask, self.books, self.eligible = ask, books, eligible
        self.topology = books.topology
        self.parts: dict[str, list[tuple[int, ContainerAsk, Demand]]] = {}
        self.seats: list[Seat] = [()] * len(ask.containers)
        self.demands: dict[tuple[int, Size], Demand | None] = {}
        """The demand of a container on a GPU, by the container's position and the GPU's size."""
        self.tries_left = 0
        self.gathered = any(c.kind != "init" for c in ask.containers)
        """Whether init containers must share GPUs of the pod's other containers."""

    def run(self) -> list[Seat] | None:
        def size(position: int) -> tuple[bool, int, int, int, int]:
            c = self.ask.containers[position]
            return (c.kind == "init", -bool(c.whole), -c.gpus, -c.mem, -c.slices)

        order = sorted(range(len(self.ask.containers)), key=size)
        if self._seat_all(order):
            return self.seats
        if not self.gathered or all(c.kind != "init" for c in self.ask.containers):
            return None
        self.gathered = False
        return self.seats if self._seat_all(order) else None

    def _seat_all(self, order: list[int]) -> bool:
        self.tries_left = SEAT_TRIES + len(order)
        return self._seat(order)

    def _seat(self, order: list[int]) -> bool:
        if not order:
            return True
        position, rest = order[0], order[1:]
        for seat in self._offers(position):
            if not self.tries_left:
                return False
            self.tries_left -= 1
            self.seats[position] = seat
            for uuid, demand in seat:
                self.parts.setdefault(uuid, []).append((position, self.ask.containers[position], demand))
            if self._seat(rest):
                return True
            for uuid, _ in seat:
                self.parts[uuid].pop()
        return False

    def _offers(self, position: int) -> Iterator[Seat]:
        """Seats for one container, best first."""
        ask = self.ask.containers[position]
        own = {uuid for uuid, parts in self.parts.items() if parts}
        among = self.eligible
        if own and ask.kind == "init" and self.gathered:
            among = [book for book in among if book.gpu.uuid in own]
        room = {book.gpu.index: (book, d) for book in among if (d := self._fits(position, ask, book))}
        if ask.gpus > len(room):
            return
        idle = tuple(
            [
                book.gpu.index
                for uuid, book in self.books.gpus.items()
                if book.idle and uuid not in own and not book.gpu.mig
            ]
        )
        candidates = self._ordered([book for book, _ in room.values()], ask, own, idle)
        if ask.gpus > 1 and self.books.on_demand:
            candidates = self._one_each(candidates, room)
        for chosen in self._sets(candidates, ask, idle):
            yield tuple((room[i][0].gpu.uuid, room[i][1]) for i in sorted(chosen))

    def _ordered(
        self, books: list[GpuBook], ask: ContainerAsk, own: Set[str], idle: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Indexes by preference; an init container prefers GPUs of its pod."""
        spread = self.ask.selection.spread
        gather = ask.kind == "init" or not spread
        losses = self.topology.losses(idle) if ask.gpus == 1 else {}

        def key(book: GpuBook) -> tuple[int, ...]:
            other = bool(own) and (book.gpu.uuid in own) != gather
            if isinstance(book.gpu, Instance):
                return (other, *_made(book, self.books, spread))
            return (other, *preference(book, spread), losses.get(book.gpu.index, 0))

        return tuple([book.gpu.index for book in sorted(books, key=key)])

    def _sets(self, candidates: tuple[int, ...], ask: ContainerAsk, idle: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Sets of GPUs for one container: the best-linked set, then sets in the order of the candidates."""
        link, local = self.ask.selection.link, self.ask.selection.numa_local
        groups = [candidates]
        if ask.gpus > 1:
            groups = self._alike(candidates)
            spared = idle if not self.ask.selection.spread or set(idle).issuperset(candidates) else ()
            found = (self.topology.best(group, ask.gpus, spared, link, local) for group in groups)
            best = [chosen for chosen in found if chosen is not None]
            if not best:
                return
            if len(best) > 1:
                best.sort(key=lambda chosen: self.topology.worth(chosen, spared, link), reverse=True)
            yield from best
        sets = chain.from_iterable(combinations(group, ask.gpus) for group in groups)
        for chosen in islice(sets, SET_TRIES):
            if self.topology.allows(chosen, link, local):
                yield chosen

    def _alike(self, candidates: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The candidates by model, if the GPUs of a container must be of one model."""
        if not alike_only(self.ask, self.books):
            return [candidates]
        model = {book.gpu.index: (book.gpu.model, book.gpu.mig) for book in self.eligible}
        groups: dict[object, list[int]] = {}
        for index in candidates:
            groups.setdefault(model[index], []).append(index)
        return [tuple(group) for group in groups.values()]

    def _fits(self, position: int, ask: ContainerAsk, book: GpuBook) -> Demand | None:
        gpu = book.gpu
        key = position, (gpu.mem, gpu.mig) if gpu.mig else gpu.mem
        if key not in self.demands:
            self.demands[key] = self.books.demand(ask, gpu)
        demand = self.demands[key]
        if demand is None:
            return None
        own = self.parts.get(book.gpu.uuid)
        if isinstance(gpu, Instance) and self._excluded(gpu):
            return None
        if not own:
            return demand if book.fits(demand) else None
        parts = [*own, (position, ask, demand)]
        running = [d for _, c, d in parts if c.kind != "init"]
        if len(running) > 1 and any(d.whole for d in running):
            return None
        return demand if book.fits(peak((c, d) for _, c, d in sorted(parts, key=lambda p: p[0]))) else None

    def _one_each(self, candidates: tuple[int, ...], room: Mapping[int, tuple[GpuBook, Demand]]) -> tuple[int, ...]:
        """The candidates, but of a profile that a GPU can have once only its best place."""
        kept: dict[tuple[int | None, int], int] = {}
        for index in candidates:
            gpu = room[index][0].gpu
            once = isinstance(gpu, Instance) and gpu.most == 1
            kept.setdefault((gpu_of(index), -1) if once else (None, index), index)
        return tuple(kept.values())

    def _excluded(self, instance: Instance) -> bool:
        """Whether the pod itself has an instance beside which this one cannot exist."""
        rivals = self.books.on_demand.rivals(instance.uuid) if self.books.on_demand else ()
        return any(self.parts.get(name) for name in rivals)
