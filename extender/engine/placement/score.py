"""What a placement costs those who are still to come, in thousandths of a GPU: the less, the better the node.

The terms, each the difference that the placement makes to its node:

- `fragments`: free GPU that the asks typical of late cannot use: F = sum over g of free(g) - V, where V = sum over
  typical asks m of share(m) x the free GPU of those GPUs that m fits on, if m runs on the node at all (CPU, model and
  number of GPUs). Source: the fragmentation measure of FGD (Weng et al., USENIX ATC 2023).
- `stranded`: free GPU for which there is no CPU or memory left: S = max(0, free GPU - free CPU / CPU that goes with a
  GPU lately, the same for memory).
- `wanted`: GPU of a kind that others ask for by its name: the share of all asked GPU that names it over its share of
  all free GPU, times what is taken.
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
from protos.contract.ask import Demand
from protos.contract.books import NodeBooks
from protos.contract.choose import Choice
from protos.contract.remembered import Remembered
from protos.contract.signature import Kind, Signature

STRANDED = 1.8
"""How much stranded GPU weighs against fragments."""
OPENED, SPARE, UNLINKED = 100, 100, 500
"""Most that these terms come to."""
LARGEST = 16
"""GPUs from which on a node is none the larger for being opened."""
LEAST_MEMO, MEMO, MEMO_GPUS = 1024, 8192, 1 << 17
"""States of nodes that are remembered: at least, at most, and how many GPUs these have together."""
STATES = 2
"""States remembered for each node, between those bounds: what it was before, and is."""
KINDS = 64
"""Kinds of nodes of which it does not matter whether any are there."""
PART, STEP, ASK = 400, 50, 2
"""Work done at once to take over another mix, in nodes, some 1 ms in all; nodes, or asks, looked at in one go; and what
it costs to find out what an ask takes of a node, in looks at nodes."""


class Terms(NamedTuple):
    """Of one placement; their sum is what it costs."""

    fragments: int = 0
    stranded: int = 0
    wanted: int = 0
    opened: int = 0
    spare: int = 0
    links: int = 0


class Seated(NamedTuple):
    """How a pod sits on its node, as far as it matters here."""

    left: Rests = ()
    """What is free of each GPU with it; empty for a pod without GPUs."""
    joined: bool = True
    """Whether every container's GPUs are joined by NVLink or stand alone."""
    spread: int | None = None
    """For a pod that is to be spread: how empty it is there (0..1000), which then is its score."""


ALONE = Seated()
"""A pod without GPUs."""


def _emptiness(left: Rests, choice: Choice, books: NodeBooks) -> int:
    """4 parts what is left of the GPUs taken, 1 part how many others are idle."""
    own = [part for uuid, part in zip(books.gpus, left, strict=True) if uuid in choice.charges]
    idle = sum(book.idle and uuid not in choice.charges for uuid, book in books.gpus.items())
    return (4 * sum(own) // len(own) + idle * GPU // len(books.gpus)) // 5


def _less(free: Rests, books: NodeBooks, charges: Mapping[str, Demand]) -> Rests:
    """What of it is free after these charges."""
    per_gpu = books.inventory.slices_per_gpu
    pairs = zip(books.gpus.items(), free, strict=True)
    return tuple([rest(book, per_gpu, charges[uuid]) if uuid in charges else part for (uuid, book), part in pairs])


def _joined(choice: Choice, books: NodeBooks) -> bool:
    sets = [[share.index for share in shares] for shares in choice.shares.values() if len(shares) > 1]
    return not sets or all(books.topology.nvlinked(indexes) for indexes in sets)


class Present(msgspec.Struct, frozen=True, eq=False):
    """A node before a placement. Nodes that are alike in all that counts have the same one, told apart by identity."""

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
    """What it costs that no GPU of it is in use."""


class Scorer:
    """What placements cost, by the mix of asks of late."""

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self._nodes = nodes
        self._mix = Mix()
        self._adopted: Mapping[Shape, float] = {}
        """The mix by which nodes are scored, and what of it is typical."""
        self._typical: list[tuple[Shape, float]] = []
        self._adoption: Sliced[None] | None = None
        self._kinds: dict[Kind, Usable] = {}
        self._gpus: Remembered[Signature, Gpus] = Remembered(LEAST_MEMO, MEMO_GPUS, lambda of: len(of.taken))
        self._presents: Remembered[tuple[Signature, int, int, int], Present] = Remembered(LEAST_MEMO)
        """By the state of the GPUs, free CPU and memory, and all CPU: of many nodes nobody is on any."""
        self.version = 0
        """Counts how often another mix was adopted."""

    def note(self, of: Shape) -> None:
        """A pod that asks GPUs came."""
        self._mix.note(of)

    @property
    def young(self) -> bool:
        """Whether so few asks came that the next ones may change all scores."""
        return self._mix.young

    @property
    def adopting(self) -> bool:
        """Whether another mix is being taken over."""
        return self._adoption is not None

    def look(self) -> None:
        """Take over what the mix is now, if enough came and it moved: a part of that at once."""
        memo = min(MEMO, max(LEAST_MEMO, STATES * len(self._nodes)))
        self._gpus.limit(memo)
        self._presents.limit(memo)
        if self._adoption is None and self._mix.due and self._mix.look():
            self._adoption = Sliced(self._adopt(self._mix.adopted))
        if self._adoption is not None and self._adoption.advance(PART):
            self._adoption = None

    def _adopt(self, mix: Mapping[Shape, float]) -> Generator[int, None, None]:
        typical = self._mix.typical()
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
            kinds[kind] = Usable(mix, typical, taken[kind])
            kinds[kind].price = price
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
        left, joined = _less(self.gpus(books).free, books, choice.charges), _joined(choice, books)
        return Seated(left, joined, _emptiness(left, choice, books) - UNLINKED * (not joined) if spread else None)

    def gpus(self, books: NodeBooks) -> Gpus:
        """What is free of them."""
        signature = books.signature()
        found = self._gpus.get(signature)
        return found if found is not None else self._gpus.put(signature, gpus(books))

    def node(self, state: NodeState) -> Present | None:
        """A node as it is; reckoned once for all shapes."""
        known = state.present
        if known is None or known[0] != state.version or known[1] != self.version:
            known = state.version, self.version, self.present(state.books, state.allocatable, state.used)
            state.present = known
        found: Present | None = known[2]
        return found

    def present(
        self, books: NodeBooks | None, allocatable: Mapping[str, int], used: Mapping[str, int]
    ) -> Present | None:
        """What a node has before a placement, None where that is no GPU."""
        if books is None or not books.gpus:
            return None
        all_cpu = allocatable.get("cpu", 0)
        cpu, memory = all_cpu - used.get("cpu", 0), allocatable.get("memory", 0) - used.get("memory", 0)
        key = books.signature(), cpu, memory, all_cpu
        found = self._presents.get(key)
        return found if found is not None else self._presents.put(key, self._reckon(books, cpu, memory, all_cpu))

    def _reckon(self, books: NodeBooks, cpu: int, memory: int, all_cpu: int) -> Present:
        found, usable = self.gpus(books), self._usable(books.signature().kind, books)
        rates = usable.rates(cpu)
        opened = 0 if found.in_use else OPENED - LARGEST + min(LARGEST, len(found.free))
        stranded = usable.stranded(cpu, memory, found.total)
        now = rates.worth(found.free)
        return Present(usable, found, now[0], {rates: now}, stranded, cpu, memory, all_cpu, opened)

    def points(self, of: Shape, present: Present | None, seated: Seated) -> int:
        """The score of such a node for this shape; more is better."""
        if seated.spread is not None:
            return seated.spread
        return -sum(terms(of, present, seated)) if present is not None else 0


def terms(of: Shape, present: Present, seated: Seated) -> Terms:
    """Of putting a pod of this shape on the node, seated like this."""
    left, links = seated.left, 0 if seated.joined else UNLINKED
    rates = present.usable.rates(present.cpu - of.cpu)
    if not left:
        return Terms(*costs(of, present, present.gpus.total, worth(present, rates)[0], links))
    return Terms(*costs(of, present, sum(left), rates.worth(left)[0], links))


def worth(present: Present, rates: Rates) -> Worth:
    """Of the GPUs as they are."""
    found = present.worths.get(rates)
    if found is None:
        if len(present.worths) >= RATES:
            present.worths.clear()
        found = present.worths[rates] = rates.worth(present.gpus.free)
    return found


def costs(of: Shape, present: Present, after: int, value: float, links: int) -> tuple[int, int, int, int, int, int]:
    """Those of `Terms`: so much GPU is free then, and that is V."""
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
    """By kind: the share of all asked GPU that names it, over its share of all free GPU."""
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
