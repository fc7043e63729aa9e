"""Plans which pods to move so that somebody who waits fits: on sketches of nodes, in slices, nothing is booked.

It looks for no moves, then for one, then for two, and so on: who needs a place takes it on some node, pods that have to
leave for that need places in their turn, and so on until everybody has one, all at the same time. Of plans with as few
moves the one that moves the least GPU memory wins, then the one that spares the oldest pods. On small clusters that is
exact; on large ones the most promising nodes are looked at and the work is bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar, cast

from extender.engine.planning.attempt import LOOK, PIECE, STEP, Attempt, ClusterView
from extender.engine.planning.clearing import clearings, cost
from extender.engine.planning.defrag_plan import CHANGED, DefragPlan, NoPlan, nowhere, plan_of, stuck, too_many, unfound
from extender.engine.planning.movable_pods import Movable, MovablePods
from extender.engine.planning.sketch import Sketch, draw, hardness
from extender.engine.policies.defrag.prospects import Prospects
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Seat
from extender.engine.types.sliced import Sliced

MOST_MOVES = 8
DRAWN = 75
"""What it costs to draw a sketch, in `attempt.LOOK`s: some 0.15 ms."""
FREED = 5
"""And to free one."""
MOST_WORK = 30_000 * DRAWN
"""After so much work the search ends with what it has."""
POLISHING = 5_000 * DRAWN
"""So much is spent on cheaper plans with as few moves as the first one found."""
NEAR = 12
"""Nodes with room that are looked at for one pod."""
SEARCHED = 8
"""A gang with more members than this is planned first, and only those without a place are searched for."""
TRIES = 3
"""Times that it is planned if the cluster changes meanwhile."""
HOMELESS = 64
"""More of them than this are not searched for."""
Found = TypeVar("Found")


class Defrag(Sliced[DefragPlan | NoPlan]):
    """One plan in the making. What comes of it is true of about the moment in which `advance` returns."""

    def __init__(
        self,
        view: ClusterView,
        movable_pods: MovablePods,
        seats: Sequence[Seat],
        most: int = MOST_MOVES,
        void: Sequence[PodState] = (),
        kept: Collection[str] = (),
    ) -> None:
        """Room for all `seats` by at most `most` moves.

        What those in `void` hold is kept for the seats, and so free. Pods in `kept` (NAMESPACE/NAME) are not moved.
        """
        self._view, self._movable_pods, self._most, self._void = view, movable_pods, most, void
        self._prospects = Prospects(view, movable_pods, kept)
        self._seats = seats
        self._board: dict[str, Sketch] = {}
        self._seen: set[object] = set()
        self._best: tuple[tuple[int, int, float], list[Sketch]] | None = None
        self._blocked: tuple[Seat, str, int, Movable] | None = None
        self._done, self._limit, self._looked = 0, MOST_WORK, 0
        super().__init__(self._plan())

    def _plan(self) -> Generator[int, None, DefragPlan | NoPlan]:
        self._seats = yield from _hardest_first(self._seats)
        for _ in range(TRIES):
            self._begin()
            todo = yield from self._unplaced()
            if len(todo) > HOMELESS:
                return unfound(todo[0], self._most, len(self._view.nodes))
            yield from self._deepen(tuple(todo))
            if self._best is None:
                return (yield from self._why(todo[0]))
            if (yield from self._stands(self._best[1])):
                yield PIECE
                found = plan_of(self._best[1], self._seats)
                yield PIECE
                yield from self._dissolve()
                return found
        return CHANGED

    def _deepen(self, todo: tuple[Seat, ...]) -> Iterator[int]:
        """Search with no moves, then with one, and so on."""
        self._best, self._done, self._limit = None, 0, MOST_WORK
        for most in range(self._most + 1):
            self._seen.clear()
            for done in self._search(todo, most):
                self._done += done
                yield done
            if self._best is not None or self._done >= self._limit:
                return

    def _stands(self, sketches: Sequence[Sketch]) -> Generator[int, None, bool]:
        """Whether what was found is true of the cluster as it is by now."""
        for sketch in sketches:
            now = self._view.nodes.get(sketch.node.name)
            if now is not sketch.node or now.version != sketch.version:
                again = self._draw(sketch.node, sketch.left, sketch.seats) if now is sketch.node else None
                if again is None or again.assignments != sketch.assignments:
                    return False
                yield DRAWN
            yield LOOK
        return True

    def _dissolve(self) -> Iterator[int]:
        """Free the sketches little by little."""
        self._best = None
        while self._board:
            self._board.popitem()
            yield FREED

    def _begin(self) -> None:
        """Forget what was known of a cluster that has changed; what is kept for the seats is free."""
        self._prospects.clear()
        self._board.clear()
        for name in sorted({pod.node for pod in self._void}):
            node = self._view.nodes.get(name)
            sketch = self._draw(node, (), ()) if node is not None else None
            if sketch is not None:
                self._board[name] = sketch

    def _unplaced(self) -> Generator[int, None, list[Seat]]:
        """Whom to search places for. Of a large gang those have one already for whom there is room."""
        if len(self._seats) <= SEARCHED:
            return list(self._seats)
        attempt = Attempt(self._view, self._seats, wide=False, strict=False)
        yield from attempt.run()
        yield PIECE
        placed: dict[str, list[Seat]] = {}
        where = {
            uid: assignment.node for uid, assignment in attempt.assignments().items()
        }  # not the spots: they are freed with the rest
        yield PIECE
        for seat in self._seats:
            if seat.uid in where:
                placed.setdefault(where[seat.uid], []).append(seat)
        yield PIECE
        yield from attempt.dissolve()
        lost = {seat.uid for seat in self._seats if seat.uid not in where}
        for name, seats in sorted(placed.items()):
            sketch = self._draw(self._view.nodes[name], (), seats) if name in self._view.nodes else None
            if sketch is None:
                lost.update(seat.uid for seat in seats)
            else:
                self._board[name] = sketch
            yield len(seats) * DRAWN
        return [seat for seat in self._seats if seat.uid in lost]

    def _draw(self, node: NodeState, left: Sequence[Movable], seats: Sequence[Seat]) -> Sketch | None:
        self._looked += 1
        if not all(map(self._movable_pods.stays, left)):
            return None
        return draw(node, left, seats, self._view.ignored, self._void)

    # -- the search

    def _search(self, todo: tuple[Seat, ...], left: int) -> Iterator[int]:
        """Find places for all of these by at most so many moves; what is found is in `_best`."""
        if not todo:
            self._record()
            return
        key = self._key(todo, left)
        if key in self._seen or self._done >= self._limit:
            return
        self._seen.add(key)
        seat, rest = todo[0], todo[1:]
        nobody = True
        for done, option in self._options(seat, left):
            yield done
            if option is None:
                continue
            nobody = False
            leaving, sketch = option
            if self._best is not None and cost([*self._left(), *leaving])[1] > self._best[0][1]:
                continue  # nothing cheaper can come of it
            before = self._board.get(sketch.node.name)
            self._board[sketch.node.name] = sketch
            moved = sorted((one.seat for one in leaving), key=hardness)
            yield from self._search((*rest, *moved), left - len(leaving))
            if before is None:
                del self._board[sketch.node.name]
            else:
                self._board[sketch.node.name] = before
            if self._done >= self._limit:
                return
        if nobody:
            self._remember(seat)

    def _options(self, seat: Seat, left: int) -> Iterator[tuple[int, tuple[tuple[Movable, ...], Sketch] | None]]:
        """Where it could go: first where nobody has to leave, then with few that have to; beside that what it cost."""
        near = yield from _free(self._prospects.near(seat))
        for name in sorted(self._board) + [name for name in near if name not in self._board][:NEAR]:
            sketch = self._with(seat, name, ())
            yield DRAWN, ((), sketch) if sketch is not None else None
        if left:
            yield from self._by_leaving(seat, left)

    def _by_leaving(self, seat: Seat, left: int) -> Iterator[tuple[int, tuple[tuple[Movable, ...], Sketch] | None]]:
        view = yield from _free(self._prospects.view(seat))
        others = [seen.node for seen in view.useful if seen.moves <= left and seen.node not in self._board]
        for name in sorted(self._board) + others:
            old = self._board.get(name)
            gone = old.left if old else ()
            staying = [one for one in self._prospects.movable(name) if one not in gone]
            for found in clearings(staying, left, partial(self._with, seat, name)):
                yield DRAWN, found

    def _with(self, seat: Seat, name: str, leaving: Iterable[Movable]) -> Sketch | None:
        """The node as it is by now, without those and with this one."""
        node, old = self._view.nodes.get(name), self._board.get(name)
        if node is None:
            return None
        if old is None:
            return self._draw(node, tuple(leaving), (seat,))
        return self._draw(node, (*old.left, *leaving), (*old.seats, seat))

    def _key(self, todo: Sequence[Seat], left: int) -> object:
        """Equal for states of the search from which the same can be reached."""
        board = frozenset(
            (name, frozenset(one.seat.uid for one in sketch.left), tuple(sorted(map(_hash, sketch.seats))))
            for name, sketch in self._board.items()
            if sketch.left or sketch.seats
        )
        return left, board, tuple(sorted(map(_hash, todo)))

    def _left(self) -> list[Movable]:
        return [one for sketch in self._board.values() for one in sketch.left]

    def _record(self) -> None:
        price = cost(self._left())
        if self._best is None:
            self._limit = min(self._limit, self._done + POLISHING)
        if self._best is None or price < self._best[0]:
            self._best = price, list(self._board.values())

    def _remember(self, seat: Seat) -> None:
        """Who that has to leave has no place, where the fewest have to."""
        homeless = next((one for one in self._left() if one.seat.uid == seat.uid), None)
        waiting = {seat.uid: seat for seat in self._seats}
        freed = [s for s in self._board.values() if s.left and any(one.uid in waiting for one in s.seats)]
        if homeless is None or not freed:
            return
        if self._blocked is None or len(freed[0].left) < self._blocked[2]:
            first = next(one for one in freed[0].seats if one.uid in waiting)
            self._blocked = first, freed[0].node.name, len(freed[0].left), homeless

    # -- the outcome

    def _why(self, seat: Seat) -> Generator[int, None, NoPlan]:
        view = yield from self._prospects.view(seat)
        if view.nearest is None or view.nearest.stuck:
            return stuck(seat, view.nearest)
        if self._blocked is not None:
            return nowhere(*self._blocked)
        if view.useful and view.useful[0].moves > self._most:
            return too_many(seat, view.useful[0], self._most)
        return unfound(seat, self._most, self._looked)


def _hardest_first(seats: Sequence[Seat]) -> Generator[int, None, list[Seat]]:
    keyed = []
    for number, seat in enumerate(seats):
        keyed.append((hardness(seat), number))
        if number % STEP == STEP - 1:
            yield 2 * STEP * LOOK
    return [seats[number] for _, number in sorted(keyed)]


def _hash(seat: Seat) -> int:
    return hash(seat.likeness)


def _free(work: Generator[int, None, Found]) -> Generator[tuple[int, None], None, Found]:
    """The same work, as a part of the search that finds no option."""
    while True:
        try:
            done = next(work)
        except StopIteration as ended:
            return cast(Found, ended.value)
        yield done, None
