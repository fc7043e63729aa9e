"""One attempt to place the members of a gang: all of them, or, to report what is missing, as many as fit.

Members that are alike form a class. Class after class, each member goes to the node that is best for it at that time:
the best of the nodes tried so far, unless a node not yet tried would be better. The work is done in small steps, and
the ledger may change between them. Nodes that changed are tried again before the attempt ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from heapq import heappop, heappush
from itertools import islice
from operator import attrgetter
from typing import TypeVar

import msgspec

from extender.engine.placement.indexes import Indexes
from extender.engine.planning.backfill_guard import Kept, unguarded
from extender.engine.planning.trial import Choices, EquivalenceClass, Trial, group, is_puzzle
from extender.engine.state.intree import Constraints
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Assignment, Seat
from extender.engine.types.shape import Shape
from protos.contract import names
from protos.contract.ask import PodAsk
from protos.contract.selection import Selection

LOOK, TRY = 1, 20
"""Costs of work: to pass over a node or sort a member, some 2 µs; to try one pod on a node."""
STEP = 32
"""Items that are handled in one step before the work can be interrupted."""
PIECE = 1000
"""Cost of work that cannot be split. It is yielded before the work too, so that the work gets a slice of its own."""
LISTED = 1000
"""Nodes of a ranking that are listed in one step."""
RENEWED = 4
"""Changed nodes that are tried again in one step."""
SURVEYED = 16
"""Most selections of nodes for which nodes are counted; with more, none is counted."""

Entry = tuple[int, str]
"""A candidate node: less is better, equals by name."""
LATER = 2**40
"""More than any node's CPUs in thousandths, and more than any score."""
T = TypeVar("T")
K = TypeVar("K")


class ClusterView(msgspec.Struct, frozen=True):
    """The nodes on which plans place pods."""

    nodes: Mapping[str, NodeState]
    indexes: Indexes
    ignored: frozenset[str] = frozenset()
    """Resources that kube-scheduler leaves to us: a node's total of them does not count if the node has books."""
    resources: names.Resources = names.Resources()
    """The names of our resources."""
    localities: tuple[str, ...] = ()
    """Labels that say where a node is, from near to far: members of a gang are kept together by them."""
    kept: Kept = unguarded
    """The guards of reservations on each node."""
    models: Callable[[Selection], Sequence[str]] = lambda _: ()
    """The models of GPUs in the cluster that a selection accepts."""


def batched(items: Iterable[T], size: int = STEP) -> Iterator[list[T]]:
    """The items in batches of this size."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def dissolve(copies: dict[K, T], cost: int) -> Iterator[int]:
    """Free these copies in steps; each costs so much."""
    while copies:
        for key in list(islice(copies, STEP)):
            del copies[key]
        yield STEP * cost


class Attempt:
    """Members on trial copies of nodes.

    A `wide` attempt finds what an ordinary one may miss, but leaves more fragments. It places classes with the fewest
    nodes first, and classes without GPUs before the others. It fills one node after the other. It takes several GPUs
    for one member where the most such members fit.
    """

    def __init__(
        self, view: ClusterView, seats: Sequence[Seat], *, wide: bool, strict: bool, within: Set[str] | None = None
    ) -> None:
        """`strict`: end at the first member that has no place. `within`: the nodes to use, None for all."""
        self._view, self._seats, self._wide, self._strict = view, seats, wide, strict
        self._within = within
        self._choices: dict[PodAsk, Choices] = {}
        self._ranked: dict[Shape, Sequence[Entry]] = {}
        self._trials: dict[str, Trial] = {}
        self.eq_classes: list[EquivalenceClass] = []

    @property
    def complete(self) -> bool:
        """Whether all members have a place."""
        return not any(eq_class.waiting for eq_class in self.eq_classes)

    @property
    def worth_another(self) -> bool:
        """Whether a wide attempt may place more members."""
        if self._wide or not all(self._ranked.get(eq_class.shape) for eq_class in self.eq_classes if eq_class.waiting):
            return False
        return len(self.eq_classes) > 1 or any(is_puzzle(eq_class.ask) for eq_class in self.eq_classes)

    def assignments(self) -> dict[str, Assignment]:
        """The assignment of each member, by UID."""
        return {seat.uid: assignment for trial in self._trials.values() for _, seat, assignment in trial.seated}

    def placed(self) -> dict[str, int]:
        """How many members each node takes."""
        return {name: len(trial.seated) for name, trial in self._trials.items() if trial.seated}

    def run(self) -> Iterator[int]:
        """The work, step by step. If it ends with all members placed, the result is valid at that moment."""
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
            yield from self._try_again()
            if self.complete:
                return

    def dissolve(self) -> Iterator[int]:
        """Free the copies in steps."""
        return dissolve(self._trials, TRY)

    # -- classes

    def _sort(self) -> Iterator[int]:
        """Sort the members into classes, and the classes into the order in which they are placed."""
        classes: dict[Hashable, EquivalenceClass] = {}
        for start in range(0, len(self._seats), STEP):
            group(self._seats[start : start + STEP], self._view.ignored, classes)
            yield 2 * STEP * LOOK
        for eq_class in classes.values():
            if eq_class.ask is not None:
                choices = Choices(eq_class.ask, self._view.indexes.scorer, evenly=self._wide)
                eq_class.choices = self._choices.setdefault(eq_class.ask, choices)
        self.eq_classes = sorted(classes.values(), key=attrgetter("hardness"))
        spread = [eq_class for eq_class in self.eq_classes if eq_class.constraints.spread is not None]
        breadths = yield from self._survey(spread)
        for eq_class in spread:
            eq_class.spread_over(breadths[eq_class.constraints])
        if self._wide:
            several = 1 < len({eq_class.constraints for eq_class in self.eq_classes}) <= SURVEYED
            breadths = (yield from self._survey(self.eq_classes)) if several else {}
            self.eq_classes.sort(key=lambda eq_class: (breadths.get(eq_class.constraints, 0), eq_class.ask is not None))

    def _survey(self, eq_classes: Sequence[EquivalenceClass]) -> Generator[int, None, dict[Constraints, int]]:
        """How many nodes each selection of nodes admits."""
        breadths: dict[Constraints, int] = dict.fromkeys((eq_class.constraints for eq_class in eq_classes), 0)
        for constraints in breadths:
            done = 0
            for node in tuple(self._view.nodes.values()):
                breadths[constraints] += constraints.admits(node)
                done += LOOK * constraints.cost
                if done >= STEP * LOOK:
                    yield done
                    done = 0
        return breadths

    # -- candidates

    def _candidates(self, of: Shape) -> Generator[int, None, Sequence[Entry]]:
        """All nodes that had room for this shape when they were ranked, best first."""
        if of not in self._ranked:
            self._ranked[of] = yield from (
                self._by_room() if of.ask is None else ranking(self._view, of, self._within, aged=True)
            )
        return self._ranked[of]

    def _by_room(self) -> Generator[int, None, Sequence[Entry]]:
        entries: list[Entry] = []
        for nodes in batched(tuple(self._view.nodes.values())):
            usable = (node for node in nodes if node.seen and (self._within is None or node.name in self._within))
            entries += sorted(map(_by_cpu, usable))
            yield STEP * LOOK
        yield PIECE
        entries.sort()
        yield PIECE
        return entries

    # -- placing

    def _fill(self, eq_class: EquivalenceClass) -> Iterator[int]:
        """Place the members of one class until no node has room for another."""
        if not eq_class.waiting:
            return
        eq_class.passed.clear()
        untouched = iter((yield from self._candidates(eq_class.shape)))
        near: list[Entry] = []
        for trial in self._trials.values():
            offered = not eq_class.barred(trial) and self._offer(eq_class, trial, near)
            yield eq_class.weight * TRY if offered else LOOK * eq_class.constraints.cost
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
        """Try a node for the first time; return the cost."""
        node = self._view.nodes.get(name)
        if node is None or not node.seen or name in self._trials:
            return LOOK
        obstacle = eq_class.barred(node) or eq_class.lack(node)
        if obstacle:
            eq_class.passed[obstacle] += 1
            return LOOK * eq_class.constraints.cost
        trial = Trial(node, self._view.indexes.scorer, self._view.kept(node))
        if self._offer(eq_class, trial, near):
            self._trials[name] = trial
        return eq_class.weight * TRY

    def _offer(self, eq_class: EquivalenceClass, trial: Trial, near: list[Entry]) -> bool:
        """Make the node a candidate if one more member fits there."""
        score = trial.score(eq_class)
        if score is None:
            return False
        key = -score - self._wide * LATER if eq_class.ask else _by_cpu(trial)[0]
        heappush(near, (key + 2 * LATER * trial.alike(eq_class), trial.name))
        return True

    def _tidy(self) -> Iterator[int]:
        """Free what is hardly needed any more, so that the last slice does not free everything."""
        self._ranked.clear()
        yield PIECE
        for choices in self._choices.values():
            choices.forget()
        yield PIECE

    def _try_again(self) -> Iterator[int]:
        """Place the members on nodes that changed again; members that do not fit there any more wait again."""
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
            if trial is None or eq_class.barred(trial) or trial.score(eq_class) is None:
                eq_class.waiting.append(seat)
            else:
                trial.put(eq_class, seat)
        if trial is not None and trial.seated:
            self._trials[trial.name] = trial


def ranking(
    view: ClusterView, of: Shape, within: Set[str] | None = None, *, aged: bool = False
) -> Generator[int, None, list[Entry]]:
    """The nodes that have room for this shape, best first, `within` these only; `aged` as in `Indexes.prepare`."""
    while view.indexes.prepare(of, STEP, aged=aged):
        yield (len(of.ask.containers) if of.ask is not None else 1) * STEP * TRY
    yield PIECE
    entries: list[Entry] = []
    for batch in batched(view.indexes.of(of).ranked(within), LISTED):
        entries += [(-score, name) for name, score in batch]
        yield PIECE
    return entries


def _by_cpu(node: NodeState) -> Entry:
    """Nodes without GPUs of ours first, so that the others keep CPUs for pods with GPUs; then the emptiest."""
    free = node.allocatable.get("cpu", 0) - node.used.get("cpu", 0)
    return (LATER if node.books is not None else 0) - free, node.name
