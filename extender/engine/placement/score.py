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

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from extender.engine.books.ledger import NodeState
from extender.engine.placement.mix import Mix, Shape
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NOTHING, GpuBook, Kind, NodeBooks, Signature
from protos.contract.choose import Choice
from protos.contract.inventory import Gpu
from protos.contract.selection import suits

GPU = 1000
"""One GPU."""
STRANDED = 1.8
"""How much stranded GPU weighs against fragments."""
BESIDE = 0.85
"""Of the CPU and memory that go with a GPU on average, so much must be there for it not to count as stranded."""
OPENED, SPARE, UNLINKED = 100, 100, 500
"""Most that these terms come to."""
LARGEST = 16
"""GPUs from which on a node is none the larger for being opened."""
MEMO = 65_536

Rests = tuple[int, ...]
"""How much of each GPU is free to be given, in thousandths: the scarcer of memory and slices."""


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
    own = [rest for uuid, rest in zip(books.gpus, left, strict=True) if uuid in choice.charges]
    idle = sum(book.idle and uuid not in choice.charges for uuid, book in books.gpus.items())
    return (4 * sum(own) // len(own) + idle * GPU // len(books.gpus)) // 5


def rests(books: NodeBooks) -> Rests:
    """What is free of each GPU."""
    per_gpu = books.inventory.slices_per_gpu
    return tuple([_rest(book, per_gpu) for book in books.gpus.values()])


def _rest(book: GpuBook, per_gpu: int, taken: Demand = NOTHING) -> int:
    if book.wholes or taken.whole or not book.offered:
        return 0
    mem, slices = book.mem_free - taken.mem, book.slices_free - taken.slices
    return max(0, min(mem * GPU // max(1, book.gpu.mem), slices * GPU // per_gpu))


def _less(free: Rests, books: NodeBooks, charges: Mapping[str, Demand]) -> Rests:
    """What of it is free after these charges."""
    per_gpu = books.inventory.slices_per_gpu
    pairs = zip(books.gpus.items(), free, strict=True)
    return tuple([_rest(book, per_gpu, charges[uuid]) if uuid in charges else rest for (uuid, book), rest in pairs])


def _joined(choice: Choice, books: NodeBooks) -> bool:
    sets = [[share.index for share in shares] for shares in choice.shares.values() if len(shares) > 1]
    return not sets or all(books.topology.nvlinked(indexes) for indexes in sets)


class Usable:
    """How much of the free GPUs of nodes of one kind typical asks can use."""

    def __init__(self, mix: Mapping[Shape, float], typical: Iterable[tuple[Shape, float]], books: NodeBooks) -> None:
        """All asks with their shares, and the typical ones with theirs; `books`: of any node of the kind."""
        steps: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for of, share in typical:
            taken = taking(of.ask, books)
            if taken is not None:
                steps.setdefault(taken, []).append((of.cpu, share))
        cpu = memory = gpus = 0.0
        for of, share in mix.items():
            taken = taking(of.ask, books)
            if taken is not None:
                cpu, memory = cpu + share * of.cpu, memory + share * of.memory
                gpus += share * _size(taken) / GPU
        self._gpu_per_cpu = GPU * gpus / (BESIDE * cpu) if cpu else 0.0
        self._gpu_per_memory = GPU * gpus / (BESIDE * memory) if memory else 0.0
        self.price = 0.0
        """How much GPU of this kind is wanted by its name."""
        self._steps = [(count, of, *_shares_by_cpu(found)) for (count, of), found in sorted(steps.items())]
        self._thresholds = sorted({cpu for found in steps.values() for cpu, _ in found})
        self._memo: dict[tuple[int, Rests], float] = {}

    def of(self, cpu: int, free: Rests) -> float:
        """V of a node of this kind with so much CPU and GPU free."""
        key = (bisect_right(self._thresholds, cpu), free)
        found = self._memo.get(key)
        if found is None:
            if len(self._memo) >= MEMO:
                self._memo.clear()
            found = self._memo[key] = self._count(cpu, free)
        return found

    def _count(self, cpu: int, free: Rests) -> float:
        total = 0.0
        for count, of, thresholds, shares in self._steps:
            fitting = [rest for rest in free if rest >= of]
            if len(fitting) >= count:
                total += shares[bisect_right(thresholds, cpu)] * sum(fitting)
        return total

    def stranded(self, cpu: int, memory: int, free: int) -> float:
        """S of a node with so much free GPU."""
        by_cpu = cpu * self._gpu_per_cpu if self._gpu_per_cpu else free
        by_memory = memory * self._gpu_per_memory if self._gpu_per_memory else free
        left = by_cpu if by_cpu < by_memory else by_memory
        return 0.0 if left >= free else free - left if left > 0 else free


def _shares_by_cpu(asks: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    """CPU amounts in order, and which share of asks runs with less than each of them."""
    ordered = sorted(asks)
    return [cpu for cpu, _ in ordered], list(accumulate((share for _, share in ordered), initial=0.0))


def taking(ask: PodAsk | None, books: NodeBooks) -> tuple[int, int] | None:
    """How many GPUs like its first one the largest container takes of a node, and how much of each (0..1000).

    None where the pod cannot run.
    """
    gpu = next(iter(books.gpus.values())).gpu
    if ask is None or not suits(ask.selection, gpu):
        return None
    found = [_taking(container, gpu, books) for container in ask.containers]
    return max((one for one in found if one is not None), key=_size) if None not in found else None


def _taking(container: ContainerAsk, gpu: Gpu, books: NodeBooks) -> tuple[int, int] | None:
    demand = books.demand(container, gpu)
    if demand is None:
        return None
    per_gpu = books.inventory.slices_per_gpu
    of = GPU if demand.whole else max(demand.mem * GPU / max(1, gpu.mem), demand.slices * GPU / per_gpu)
    return (container.gpus, int(of)) if of <= GPU else None


def _size(taken: tuple[int, int]) -> int:
    return taken[0] * taken[1]


class Present(msgspec.Struct, frozen=True, eq=False):
    """A node before a placement. Nodes that are alike in all that counts have the same one, told apart by identity."""

    usable: Usable
    free: Rests
    total: int
    """Their sum."""
    value: float
    """V."""
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
        self._typical: list[tuple[Shape, float]] = []
        self._kinds: dict[Kind, Usable] = {}
        self._states: dict[Signature, tuple[Rests, bool]] = {}
        self._presents: dict[tuple[Signature, int, int, int], Present] = {}
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

    def look(self) -> None:
        """Take over what the mix is now, if enough came and it moved."""
        if self._mix.due and self._mix.look():
            self._adopt()

    def _adopt(self) -> None:
        self.version += 1
        self._typical = self._mix.typical()
        self._kinds.clear()
        self._presents.clear()
        free: Counter[Kind] = Counter()
        like: dict[Kind, NodeBooks] = {}
        for node in self._nodes.values():
            if node.books is not None and node.books.gpus:
                kind = node.books.signature().kind
                like.setdefault(kind, node.books)
                free[kind] += sum(self._state(node.books)[0])
        for kind, price in _prices(self._mix.adopted, like, free).items():
            self._usable(kind, like[kind]).price = price

    def _usable(self, kind: Kind, books: NodeBooks) -> Usable:
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = Usable(self._mix.adopted, self._typical, books)
        return found

    def seated(self, choice: Choice, books: NodeBooks, *, spread: bool = False) -> Seated:
        """How a pod with these GPUs sits on the node."""
        left, joined = _less(self._state(books)[0], books, choice.charges), _joined(choice, books)
        return Seated(left, joined, _emptiness(left, choice, books) - UNLINKED * (not joined) if spread else None)

    def _state(self, books: NodeBooks) -> tuple[Rests, bool]:
        """What is free of each GPU, and whether any is in use."""
        signature = books.signature()
        found = self._states.get(signature)
        if found is None:
            if len(self._states) >= MEMO:
                self._states.clear()
            in_use = any(book.sharers or book.wholes for book in books.gpus.values())
            found = self._states[signature] = rests(books), in_use
        return found

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
        if found is None:
            if len(self._presents) >= MEMO:
                self._presents.clear()
            found = self._presents[key] = self._reckon(books, cpu, memory, all_cpu)
        return found

    def _reckon(self, books: NodeBooks, cpu: int, memory: int, all_cpu: int) -> Present:
        free, in_use = self._state(books)
        usable = self._usable(books.signature().kind, books)
        total = sum(free)
        opened = 0 if in_use else OPENED - LARGEST + min(LARGEST, len(free))
        stranded = usable.stranded(cpu, memory, total)
        return Present(usable, free, total, usable.of(cpu, free), stranded, cpu, memory, all_cpu, opened)

    def points(self, of: Shape, present: Present | None, seated: Seated) -> int:
        """The score of such a node for this shape; more is better."""
        if seated.spread is not None:
            return seated.spread
        return -sum(terms(of, present, seated)) if present is not None else 0


def terms(of: Shape, present: Present, seated: Seated) -> Terms:
    """Of putting a pod of this shape on the node, seated like this."""
    left = seated.left or present.free
    after, usable = sum(left), present.usable
    cpu, taken = present.cpu - of.cpu, present.total - after
    stranded = usable.stranded(cpu, present.memory - of.memory, after) - present.stranded
    return Terms(
        fragments=round(present.value - usable.of(cpu, left)) - taken,
        stranded=round(STRANDED * stranded),
        wanted=round(usable.price * taken),
        opened=present.opened,
        spare=cpu * SPARE // present.all_cpu if cpu > 0 else 0,
        links=0 if seated.joined else UNLINKED,
    )


def _prices(
    shares: Mapping[Shape, float], like: Mapping[Kind, NodeBooks], free: Mapping[Kind, int]
) -> dict[Kind, float]:
    """By kind: the share of all asked GPU that names it, over its share of all free GPU."""
    named: dict[Kind, float] = dict.fromkeys(like, 0.0)
    asked = 0.0
    for of, share in shares.items():
        takes = {kind: taken for kind, books in like.items() if (taken := taking(of.ask, books)) is not None}
        room = sum(free[kind] for kind in takes)
        if not room:
            continue
        for kind, taken in takes.items():
            demand = share * _size(taken) * free[kind] / room
            asked += demand
            if of.ask is not None and of.ask.selection.selective:
                named[kind] += demand
    everything = sum(free.values())
    return {kind: (named[kind] / asked) / (free[kind] / everything) if free[kind] and asked else 0.0 for kind in like}
