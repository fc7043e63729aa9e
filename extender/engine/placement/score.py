"""What a placement costs later pods, in thousandths of a GPU: the less, the better the node.

The terms, each the difference that the placement makes to its node:

- `fragments`: free GPU that recent typical requests cannot use: F = sum over g of free(g) - V, where V = sum over
  typical requests m of share(m) x the free GPU of those GPUs that m fits on, if m runs on the node at all (CPU, model
  and number of GPUs). Source: the fragmentation measure of FGD (Weng et al., USENIX ATC 2023).
- `stranded`: free GPU without free CPU or memory: S = max(0, free GPU - free CPU / recent CPU per GPU, the same for
  memory).
- `wanted`: GPU of a kind that pods request by name: the share of all requested GPU that names it over its share of all
  free GPU, times what is taken.
- `opened`: a node on which no GPU is in use, a large one a little more; `spare`: the share of the node's CPU that stays
  free. Both only decide between nodes that are otherwise about equal.
- `links`: several GPUs for one container that are not all joined by NVLink.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from typing import NamedTuple

import msgspec

from extender.engine.placement.gpus import Gpus, gpus, rest
from extender.engine.placement.mix import Mix
from extender.engine.placement.usable import GPU, RATES, Rates, Rests, Takes, Usable, Worth, size, takes
from extender.engine.state.node_state import NodeState
from extender.engine.types.shape import Shape
from extender.engine.types.sliced import Sliced
from protos.contract import mig
from protos.contract.books import NodeBooks
from protos.contract.choose import Choice
from protos.contract.remembered import Remembered
from protos.contract.signature import Kind, Signature

STRANDED = 1.8
"""The weight of stranded GPU against fragments."""
OPENED, SPARE, UNLINKED = 100, 100, 500
"""The maxima of these terms."""
LARGEST = 16
"""GPUs of a node above which `opened` grows no more."""
LEAST_MEMO, MEMO, MEMO_GPUS = 1024, 8192, 1 << 17
"""States of nodes that are remembered: at least, at most, and the GPUs of all of them."""
STATES = 2
"""States remembered for each node, between those bounds."""
KINDS = 64
"""Kinds remembered though no node may be of them."""
PART, STEP, ASK = 400, 50, 2
"""Adopting a mix: nodes looked at in one slice, some 1 ms; nodes or shapes in one step; and the cost of a shape."""


class Terms(NamedTuple):
    """The terms of one placement; their sum is its cost."""

    fragments: int = 0
    stranded: int = 0
    wanted: int = 0
    opened: int = 0
    spare: int = 0
    links: int = 0


class Seated(NamedTuple):
    """How a pod sits on its node, as far as scores need it."""

    left: Rests = ()
    """What stays free of each GPU; empty for a pod without GPUs."""
    joined: bool = True
    """Whether the GPUs of each container with several are joined by NVLink."""
    spread: int | None = None
    """The score of a pod that is to be spread: how empty it is there (0..1000)."""


ALONE = Seated()
"""A pod without GPUs."""


def _emptiness(left: Rests, choice: Choice, books: NodeBooks) -> int:
    """Four parts what is left of the GPUs taken, one part how many others are idle."""
    taken = {place.gpu if (place := mig.place(uuid)) else uuid for uuid in choice.charges}
    own = [part for uuid, part in zip(books.gpus, left, strict=True) if uuid in taken]
    idle = sum(book.idle and uuid not in choice.charges for uuid, book in books.gpus.items())
    return (4 * sum(own) // len(own) + idle * GPU // len(books.gpus)) // 5


def _cut(left: Rests, choice: Choice, books: NodeBooks) -> Rests:
    """What stays free if also the instances that are made for the pod are cut out of their GPUs."""
    taken: Counter[str] = Counter()
    for uuid in choice.charges:
        if (place := mig.place(uuid)) is not None:
            taken[place.gpu] += GPU * books.gpus[uuid].gpu.slices // mig.SLICES
    return tuple([max(0, free - taken[uuid]) for uuid, free in zip(books.gpus, left, strict=True)])


class Present(msgspec.Struct, frozen=True, eq=False):
    """A node before a placement. Nodes in equal states share one object, compared by identity."""

    usable: Usable
    gpus: Gpus
    value: float
    """V."""
    worths: dict[Rates, Worth]
    """V with less CPU."""
    stranded: float
    """S."""
    cpu: int
    """Free, in thousandths of a core."""
    memory: int
    """Free, in bytes."""
    all_cpu: int
    opened: int
    """The term for a placement here."""


class Scorer:
    """The costs of placements by the mix of recent requests. Keeps the mix, and results by the states of nodes."""

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self._nodes = nodes
        self.mix = Mix()
        self._adopted: Mapping[Shape, float] = {}
        """The mix by which nodes are scored; that of `mix` may be newer."""
        self._typical: list[tuple[Shape, float]] = []
        self._adoption: Sliced[None] | None = None
        self._kinds: dict[Kind, Usable] = {}
        self._gpus: Remembered[Signature, Gpus] = Remembered(LEAST_MEMO, MEMO_GPUS, lambda of: len(of.taken))
        self._presents: Remembered[tuple[Signature, int, int, int], Present] = Remembered(LEAST_MEMO)
        """By the state of the GPUs, free CPU and memory, and all CPU."""
        self.version = 0
        """Counts adoptions of a mix."""

    def note(self, of: Shape) -> None:
        self.mix.note(of)

    @property
    def adopting(self) -> bool:
        return self._adoption is not None

    def look(self) -> None:
        """Adopt the current mix if it has moved: one slice of that work."""
        memo = min(MEMO, max(LEAST_MEMO, STATES * len(self._nodes)))
        self._gpus.limit(memo)
        self._presents.limit(memo)
        if self._adoption is None and self.mix.due and self.mix.look():
            self._adoption = Sliced(self._adopt(self.mix.adopted))
        if self._adoption is not None and self._adoption.advance(PART):
            self._adoption = None

    def _adopt(self, mix: Mapping[Shape, float]) -> Generator[int, None, None]:
        typical = self.mix.typical()
        free: Counter[Kind] = Counter()
        like: dict[Kind, NodeBooks] = {}
        for number, node in enumerate(list(self._nodes.values())):
            if node.books is not None and node.books.gpus:
                kind = node.books.signature().kind
                like.setdefault(kind, node.books)
                free[kind] += self.gpus(node.books).total
            if number % STEP == STEP - 1:
                yield STEP
        taken: dict[Kind, dict[Shape, tuple[int, int]]] = {kind: {} for kind in like}
        shapes = list(mix)
        for start in range(0, len(shapes), STEP):
            for kind, books in like.items():
                taken[kind] |= takes(shapes[start : start + STEP], books)
                yield ASK * STEP
        prices = _prices(mix, taken, free)
        yield len(mix)
        kinds: dict[Kind, Usable] = {}
        for kind, price in prices.items():
            kinds[kind] = Usable(mix, typical, taken[kind], price)
            yield len(mix)
        self._adopted, self._typical, self._kinds = mix, typical, kinds
        self._presents.clear()
        self.version += 1

    def _usable(self, kind: Kind, books: NodeBooks) -> Usable:
        found = self._kinds.get(kind)
        if found is None:
            if len(self._kinds) >= KINDS + 2 * len(self._nodes):
                there = {node.books.signature().kind for node in self._nodes.values() if node.books is not None}
                self._kinds = {each: usable for each, usable in self._kinds.items() if each in there}
            found = self._kinds[kind] = Usable(self._adopted, self._typical, takes(self._adopted, books))
        return found

    def seated(self, choice: Choice, books: NodeBooks, *, spread: bool = False) -> Seated:
        """How a pod with these GPUs sits on the node."""
        charges = choice.charges
        pairs = zip(books.gpus.items(), self.gpus(books).free, strict=True)
        left = tuple([rest(book, charges[uuid]) if uuid in charges else free for (uuid, book), free in pairs])
        if books.on_demand:
            left = _cut(left, choice, books)
        sets = [[share.index for share in shares] for shares in choice.shares.values() if len(shares) > 1]
        joined = all(books.topology.nvlinked(indexes) for indexes in sets)
        return Seated(left, joined, _emptiness(left, choice, books) - UNLINKED * (not joined) if spread else None)

    def gpus(self, books: NodeBooks) -> Gpus:
        signature = books.signature()
        found = self._gpus.get(signature)
        return found if found is not None else self._gpus.put(signature, gpus(books))

    def node(self, state: NodeState) -> Present | None:
        """The present of a node, computed once for all shapes."""
        known = state.present
        if known is None or known[0] != state.version or known[1] != self.version:
            known = state.version, self.version, self.present(state.books, state.allocatable, state.used)
            state.present = known
        found: Present | None = known[2]
        return found

    def present(
        self, books: NodeBooks | None, allocatable: Mapping[str, int], used: Mapping[str, int]
    ) -> Present | None:
        """The present of a node with these books and amounts, None if it has no GPU."""
        if books is None or not books.gpus:
            return None
        all_cpu = allocatable.get("cpu", 0)
        cpu, memory = all_cpu - used.get("cpu", 0), allocatable.get("memory", 0) - used.get("memory", 0)
        key = books.signature(), cpu, memory, all_cpu
        found = self._presents.get(key)
        if found is not None:
            return found
        gpus, usable = self.gpus(books), self._usable(books.signature().kind, books)
        rates = usable.rates(cpu)
        opened = 0 if gpus.in_use else OPENED - LARGEST + min(LARGEST, len(gpus.free))
        stranded = usable.stranded(cpu, memory, gpus.total)
        now = rates.worth(gpus.free)
        present = Present(usable, gpus, now[0], {rates: now}, stranded, cpu, memory, all_cpu, opened)
        return self._presents.put(key, present)

    def points(self, of: Shape, present: Present | None, seated: Seated) -> int:
        """The score of such a node for this shape; a higher one is better."""
        if seated.spread is not None:
            return seated.spread
        return -sum(terms(of, present, seated)) if present is not None else 0


def terms(of: Shape, present: Present, seated: Seated) -> Terms:
    """The terms of placing a pod of this shape on the node, seated like this."""
    left, links = seated.left, 0 if seated.joined else UNLINKED
    rates = present.usable.rates(present.cpu - of.cpu)
    if not left:
        return Terms(*costs(of, present, present.gpus.total, worth(present, rates)[0], links))
    return Terms(*costs(of, present, sum(left), rates.worth(left)[0], links))


def worth(present: Present, rates: Rates) -> Worth:
    """V and what it is made of, of the GPUs before the placement."""
    found = present.worths.get(rates)
    if found is None:
        if len(present.worths) >= RATES:
            present.worths.clear()
        found = present.worths[rates] = rates.worth(present.gpus.free)
    return found


def costs(of: Shape, present: Present, after: int, value: float, links: int) -> tuple[int, int, int, int, int, int]:
    """The values of `Terms`; `after`: how much GPU is free then, `value`: V then."""
    cpu, usable, taken = present.cpu - of.cpu, present.usable, present.gpus.total - after
    stranded = usable.stranded(cpu, present.memory - of.memory, after) - present.stranded
    return (
        round(present.value - value) - taken,
        round(STRANDED * stranded) if stranded else 0,
        round(usable.price * taken) if usable.price else 0,
        present.opened,
        cpu * SPARE // present.all_cpu if cpu > 0 else 0,
        links,
    )


def _prices(shares: Mapping[Shape, float], takes: Mapping[Kind, Takes], free: Mapping[Kind, int]) -> dict[Kind, float]:
    """By kind: the share of all requested GPU that names it, over its share of all free GPU."""
    named: dict[Kind, float] = dict.fromkeys(takes, 0.0)
    room: Counter[Shape] = Counter()
    for kind, of_kind in takes.items():
        for of in of_kind:
            room[of] += free[kind]
    asked = 0.0
    for kind, of_kind in takes.items():
        for of, taken in of_kind.items():
            if room[of]:
                demand = shares[of] * size(taken) * free[kind] / room[of]
                asked += demand
                if of.ask is not None and of.ask.selection.selective:
                    named[kind] += demand
    everything = sum(free.values())
    return {kind: (named[kind] / asked) / (free[kind] / everything) if free[kind] and asked else 0.0 for kind in takes}
