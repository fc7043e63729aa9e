"""One attempt to place members of a gang, all of them or (to tell what is missing) as many as go.

Members that are alike form a lot. Lot after lot, each member goes to the node that is best for it then: of the nodes
that the attempt has touched the one that scores best, unless one that it has not touched yet would be better. It works
in small steps between which the ledger may change; nodes that did are looked at anew before the attempt ends.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence, Set
from heapq import heappop, heappush
from itertools import islice
from operator import attrgetter

import msgspec

from extender.engine.placement.index import Indexes
from extender.engine.planning.backfill_guard import Kept, nobody
from extender.engine.planning.trial import Choices, EquivalenceClass, Trial, group, is_puzzle
from extender.engine.state.intree import Constraints
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Assignment, Seat
from extender.engine.types.shape import Shape
from protos.contract import names
from protos.contract.ask import PodAsk

LOOK, TRY = 1, 20
"""What work costs: to pass over a node or to sort a member, some 2 µs; to see how something goes onto a node."""
STEP = 32
"""So much is done at least before the work is interrupted."""
PIECE = 1000
"""What work in one piece costs, told before it is done too, so that nothing else is done in its slice."""
LISTED = 1000
"""Nodes of a ranking that are listed at once."""
RENEWED = 4
"""Nodes that changed which are looked at anew at once."""
SURVEYED = 16
"""Different selections of nodes that are counted; with more of them, none is."""

Entry = tuple[int, str]
"""A node as a candidate: less is better, equals by name."""
LATER = 2**40
"""More than any node's CPUs, in thousandths, and than any score."""


class ClusterView(msgspec.Struct, frozen=True):
    """Where plans look."""

    nodes: Mapping[str, NodeState]
    indexes: Indexes
    ignored: frozenset[str] = frozenset()
    """Resources that kube-scheduler leaves to us: no node's total is held against them where it has books."""
    resources: names.Resources = names.Resources()
    """What these are called."""
    localities: tuple[str, ...] = ()
    """Labels that say where a node is, from near to far: members of a gang are kept together by them."""
    kept: Kept = nobody
    """What must be left there for others."""


class Attempt:
    """Members on trial copies of nodes. `wide` tries what the ordinary way may miss, at the price of fragments:

    members with the fewest nodes first, and those without GPUs before the others; nodes filled one after the other,
    and several GPUs for one member taken where the most such members fit.
    """

    def __init__(
        self, view: ClusterView, seats: Sequence[Seat], *, wide: bool, strict: bool, within: Set[str] | None = None
    ) -> None:
        """`strict` ends it at the first member that has no place; `within`: the nodes to be used, None for all."""
        self._view, self._seats, self._wide, self._strict = view, seats, wide, strict
        self._within = within
        self._choices: dict[PodAsk, Choices] = {}
        self._ranked: dict[Shape, Sequence[Entry]] = {}
        self._trials: dict[str, Trial] = {}
        self.eq_classes: list[EquivalenceClass] = []

    @property
    def complete(self) -> bool:
        """Whether everybody has a place."""
        return not any(eq_class.waiting for eq_class in self.eq_classes)

    @property
    def worth_another(self) -> bool:
        """Whether the wide way may place somebody who has no place."""
        if self._wide or not all(self._ranked.get(eq_class.shape) for eq_class in self.eq_classes if eq_class.waiting):
            return False
        return len(self.eq_classes) > 1 or any(is_puzzle(eq_class.ask) for eq_class in self.eq_classes)

    def assignments(self) -> dict[str, Assignment]:
        """Where each member goes, by UID."""
        return {seat.uid: assignment for trial in self._trials.values() for _, seat, assignment in trial.seated}

    def placed(self) -> dict[str, int]:
        """How many members each node takes."""
        return {name: len(trial.seated) for name, trial in self._trials.items() if trial.seated}

    def run(self) -> Iterator[int]:
        """The work, step by step. When it ends with all placed, what it found is true of that very moment."""
        yield from self._sort()
        while True:
            for eq_class in self.eq_classes:
                if self._strict and eq_class.waiting and not (yield from self._candidates(eq_class.shape)):
                    return
            for eq_class in self.eq_classes:
                yield from self._fill(eq_class)
                if eq_class.waiting and self._strict:
                    return
            if not self.complete:
                return
            yield from self._tidy()
            yield from self._look_anew()
            if self.complete:
                return

    def dissolve(self) -> Iterator[int]:
        """Free the copies little by little."""
        while self._trials:
            for name in list(islice(self._trials, STEP)):
                del self._trials[name]
            yield STEP * TRY

    # -- lots

    def _sort(self) -> Iterator[int]:
        """Members into lots, and these into the order in which they are placed."""
        found: dict[Hashable, EquivalenceClass] = {}
        for start in range(0, len(self._seats), STEP):
            group(self._seats[start : start + STEP], self._view.ignored, found)
            yield 2 * STEP * LOOK
        for eq_class in found.values():
            eq_class.choices = self._chooser(eq_class.ask)
        self.eq_classes = sorted(found.values(), key=attrgetter("hardness"))
        spread = [eq_class for eq_class in self.eq_classes if eq_class.constraints.spread is not None]
        breadths = yield from self._survey(spread)
        for eq_class in spread:
            eq_class.spread_over(breadths[eq_class.constraints])
        if self._wide:
            several = 1 < len({eq_class.constraints for eq_class in self.eq_classes}) <= SURVEYED
            breadths = (yield from self._survey(self.eq_classes)) if several else {}
            self.eq_classes.sort(key=lambda eq_class: (breadths.get(eq_class.constraints, 0), eq_class.ask is not None))

    def _chooser(self, ask: PodAsk | None) -> Choices | None:
        if ask is None:
            return None
        if ask not in self._choices:
            self._choices[ask] = Choices(ask, self._view.indexes.scorer, evenly=self._wide)
        return self._choices[ask]

    def _survey(self, eq_classes: Sequence[EquivalenceClass]) -> Generator[int, None, dict[Constraints, int]]:
        """How many nodes each selection of nodes admits."""
        found: dict[Constraints, int] = dict.fromkeys((eq_class.constraints for eq_class in eq_classes), 0)
        for constraints in found:
            for number, node in enumerate(tuple(self._view.nodes.values())):
                found[constraints] += constraints.admits(node)
                if number % STEP == 0:
                    yield STEP * LOOK
        return found

    # -- candidates

    def _candidates(self, of: Shape) -> Generator[int, None, Sequence[Entry]]:
        """All nodes that had room for this when they were looked at, best first."""
        if of not in self._ranked:
            self._ranked[of] = yield from (
                self._by_room() if of.ask is None else ranking(self._view, of, self._within, aged=True)
            )
        return self._ranked[of]

    def _by_room(self) -> Generator[int, None, Sequence[Entry]]:
        nodes = iter(tuple(self._view.nodes.values()))
        found: list[Entry] = []
        while some := list(islice(nodes, STEP)):
            usable = (node for node in some if node.seen and (self._within is None or node.name in self._within))
            found += sorted(_by_cpu(node.name, node, node.used) for node in usable)
            yield STEP * LOOK
        yield PIECE
        found.sort()
        yield PIECE
        return found

    # -- placing

    def _fill(self, eq_class: EquivalenceClass) -> Iterator[int]:
        """Place the members of one lot until nobody has room for another."""
        if not eq_class.waiting:
            return
        eq_class.passed.clear()
        untouched = iter((yield from self._candidates(eq_class.shape)))
        near: list[Entry] = []
        for trial in self._trials.values():
            offered = not eq_class.barred(trial.node) and self._offer(eq_class, trial, near)
            yield eq_class.weight * TRY if offered else LOOK
        ahead, done = next(untouched, None), 0
        while eq_class.waiting and (near or ahead):
            if ahead is not None and (not near or ahead < near[0]):
                done += self._approach(eq_class, ahead[1], near)
                ahead = next(untouched, None)
            else:
                trial = self._trials[heappop(near)[1]]
                trial.put(eq_class, eq_class.waiting.popleft())
                self._offer(eq_class, trial, near)
                done += 2 * eq_class.weight * TRY
            if done >= STEP:
                yield done
                done = 0

    def _approach(self, eq_class: EquivalenceClass, name: str, near: list[Entry]) -> int:
        """Look at a node for the first time; returns what that costs."""
        node = self._view.nodes.get(name)
        if node is None or not node.seen or name in self._trials:
            return LOOK
        obstacle = eq_class.barred(node) or eq_class.lack(node.books, node.allocatable, node.used)
        if obstacle:
            eq_class.passed[obstacle] += 1
            return LOOK
        trial = Trial(node, self._view.indexes.scorer, self._view.kept(node))
        if self._offer(eq_class, trial, near):
            self._trials[name] = trial
        return eq_class.weight * TRY

    def _offer(self, eq_class: EquivalenceClass, trial: Trial, near: list[Entry]) -> bool:
        """Make the node a candidate if one more member goes there."""
        score = trial.score(eq_class)
        if score is None:
            return False
        key = -score - self._wide * LATER if eq_class.ask else _by_cpu(trial.name, trial.node, trial.used)[0]
        heappush(near, (key + 2 * LATER * trial.alike(eq_class), trial.name))
        return True

    def _tidy(self) -> Iterator[int]:
        """Let go of what is hardly needed any more, lest all of it is freed in the last slice."""
        self._ranked.clear()
        yield PIECE
        for choices in self._choices.values():
            choices.forget()
        yield PIECE

    def _look_anew(self) -> Iterator[int]:
        """Put the members on nodes that changed meanwhile there again; who does not fit any more waits again."""
        nodes = self._view.nodes
        while changed := [trial for trial in self._trials.values() if not trial.current(nodes)]:
            for trial in changed[:RENEWED]:
                self._renew(trial)
            if len(changed) > RENEWED:
                yield RENEWED * STEP * TRY

    def _renew(self, old: Trial) -> None:
        del self._trials[old.name]
        node = self._view.nodes.get(old.name)
        trial = None
        if node is not None and node.seen:
            trial = Trial(node, self._view.indexes.scorer, self._view.kept(node))
        for eq_class, seat, _ in old.seated:
            if trial is None or eq_class.barred(trial.node) or trial.score(eq_class) is None:
                eq_class.waiting.append(seat)
            else:
                trial.put(eq_class, seat)
        if trial is not None and trial.seated:
            self._trials[trial.name] = trial


def ranking(
    view: ClusterView, of: Shape, within: Set[str] | None = None, *, aged: bool = False
) -> Generator[int, None, list[Entry]]:
    """The nodes that have room for this shape, best first, of `within` only; `aged` as of `Indexes.prepare`."""
    while view.indexes.prepare(of, STEP, aged=aged):
        yield (len(of.ask.containers) if of.ask is not None else 1) * STEP * TRY
    yield PIECE
    entries = view.indexes.of(of).entries(within)
    found: list[Entry] = []
    while some := list(islice(entries, LISTED)):
        found += some
        yield PIECE
    return found


def _by_cpu(name: str, node: NodeState, used: Mapping[str, int]) -> Entry:
    """Nodes without GPUs of ours go first, so that those keep their CPUs for pods with GPUs; then the emptiest."""
    free = node.allocatable.get("cpu", 0) - used.get("cpu", 0)
    return (LATER if node.books is not None else 0) - free, name
