"""Plans which pods to move so that pending pods fit: on copies of nodes, in slices, nothing is booked.

It searches with no moves, then with one, then with two, and so on. A pending pod takes a place on some node. Pods that
must leave for it need places in their turn, and so on until all fit at the same time. Of plans with equally few moves,
the one that moves the least GPU memory wins, then the one that spares the oldest pods. On small clusters the search is
exact. On large ones it looks at the most promising nodes, and its work is bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter

from extender.engine.planning.attempt import LOOK, PIECE, STEP, Attempt, ClusterView, dissolve
from extender.engine.planning.defrag_plan import CHANGED, DefragPlan, NoPlan, nowhere, plan_of, stuck, too_many, unfound
from extender.engine.planning.movable_pods import Movable, MovablePods
from extender.engine.planning.sketch import DRAWN, Option, Sketch, clearings, cost, draw
from extender.engine.policies.defrag.prospects import Prospects
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Seat
from extender.engine.types.sliced import Sliced

MOST_MOVES = 8
FREED = 5
"""Cost of freeing a sketch."""
MOST_WORK = 30_000 * DRAWN
"""The work after which the search ends with what it has."""
POLISHING = 5_000 * DRAWN
"""The work spent on cheaper plans with as few moves as the first plan found."""
NEAR = 12
"""Nodes with room that are tried for one pod."""
SEARCHED = 8
"""A gang with more members than this is planned first; only members without a place are searched for."""
TRIES = 3
"""How often it is planned if the cluster changes meanwhile."""
HOMELESS = 64
"""More pods without a place than this are not searched for."""


class Defrag(Sliced[DefragPlan | NoPlan]):
    """One plan in the making. The outcome is valid at about the moment when `advance` returns."""

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

        What pods in `void` hold is reserved for the seats, and so free. Pods in `kept` (NAMESPACE/NAME) are not moved.
        """
        self._view, self._movable_pods, self._most, self._void = view, movable_pods, most, void
        self._prospects = Prospects(view, movable_pods, kept)
        self._seats = seats
        self._board: dict[str, Sketch] = {}
        """The nodes changed so far, by name."""
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
                plan = plan_of(self._best[1], self._seats)
                yield PIECE
                self._best = None
                yield from dissolve(self._board, FREED)
                return plan
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
        """Whether the sketches are still valid; those of nodes that changed are drawn again."""
        for sketch in sketches:
            if not sketch.node.current(self._view.nodes):
                node = self._view.nodes.get(sketch.node.name)
                again = self._draw(node, sketch.left, sketch.seats) if node is sketch.node.origin else None
                if again is None or again.assignments != sketch.assignments:
                    return False
                yield DRAWN
            yield LOOK
        return True

    def _begin(self) -> None:
        """Forget what was known of a cluster that has changed; what is reserved for the seats is free."""
        self._prospects.clear()
        self._board.clear()
        for name in sorted({pod.node for pod in self._void}):
            node = self._view.nodes.get(name)
            sketch = self._draw(node, (), ()) if node is not None else None
            if sketch is not None:
                self._board[name] = sketch

    def _unplaced(self) -> Generator[int, None, list[Seat]]:
        """The pods to search places for; members of a large gang for which there is room are put there."""
        if len(self._seats) <= SEARCHED:
            return list(self._seats)
        attempt = Attempt(self._view, self._seats, wide=False, strict=False)
        yield from attempt.run()
        yield PIECE
        placed: dict[str, list[Seat]] = {}
        where = {
            uid: assignment.node for uid, assignment in attempt.assignments().items()
        }  # nodes only: the assignments are freed with the attempt
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
        """Find places for all of these by at most `left` moves; the result is in `_best`."""
        if not todo:
            self._record()
            return
        key = self._key(todo, left)
        if key in self._seen or self._done >= self._limit:
            return
        self._seen.add(key)
        seat, rest = todo[0], todo[1:]
        placed = False
        for found in self._options(seat, left):
            if isinstance(found, int):
                yield found
                continue
            placed = True
            leaving, sketch = found
            if self._best is not None and cost([*self._left(), *leaving])[1] > self._best[0][1]:
                continue  # every plan with this option is dearer
            before = self._board.get(sketch.node.name)
            self._board[sketch.node.name] = sketch
            moved = sorted((pod.seat for pod in leaving), key=attrgetter("hardness"))
            yield from self._search((*rest, *moved), left - len(leaving))
            if before is None:
                del self._board[sketch.node.name]
            else:
                self._board[sketch.node.name] = before
            if self._done >= self._limit:
                return
        if not placed:
            self._note_blocked(seat)

    def _options(self, seat: Seat, left: int) -> Iterator[int | Option]:
        """Places for the pod, after the costs of finding them: first without moves, then with few."""
        near = yield from self._prospects.near(seat)
        for name in sorted(self._board) + [name for name in near if name not in self._board][:NEAR]:
            sketch = self._with(seat, name, ())
            yield DRAWN
            if sketch is not None:
                yield (), sketch
        if left:
            yield from self._by_leaving(seat, left)

    def _by_leaving(self, seat: Seat, left: int) -> Iterator[int | Option]:
        view = yield from self._prospects.view(seat)
        others = [seen.node for seen in view.useful if seen.moves <= left and seen.node not in self._board]
        for name in sorted(self._board) + others:
            old = self._board.get(name)
            gone = old.left if old else ()
            staying = [pod for pod in self._prospects.movable(name) if pod not in gone]
            yield from clearings(staying, left, partial(self._with, seat, name))

    def _with(self, seat: Seat, name: str, leaving: Iterable[Movable]) -> Sketch | None:
        """The node as changed so far, without these pods and with this one."""
        node, old = self._view.nodes.get(name), self._board.get(name)
        if node is None:
            return None
        if old is None:
            return self._draw(node, tuple(leaving), (seat,))
        return self._draw(node, (*old.left, *leaving), (*old.seats, seat))

    def _key(self, todo: Sequence[Seat], left: int) -> object:
        """Equal for states of the search from which the same can be reached."""
        board = frozenset(
            (name, frozenset(pod.seat.uid for pod in sketch.left), tuple(sorted(map(_hash, sketch.seats))))
            for name, sketch in self._board.items()
            if sketch.left or sketch.seats
        )
        return left, board, tuple(sorted(map(_hash, todo)))

    def _left(self) -> list[Movable]:
        return [pod for sketch in self._board.values() for pod in sketch.left]

    def _record(self) -> None:
        price = cost(self._left())
        if self._best is None:
            self._limit = min(self._limit, self._done + POLISHING)
        if self._best is None or price < self._best[0]:
            self._best = price, list(self._board.values())

    def _note_blocked(self, seat: Seat) -> None:
        """Note a pod that would have to leave and fits nowhere else, where the fewest pods have to leave."""
        homeless = next((pod for pod in self._left() if pod.seat.uid == seat.uid), None)
        waiting = {seat.uid for seat in self._seats}
        freed = [s for s in self._board.values() if s.left and any(seat.uid in waiting for seat in s.seats)]
        if homeless is None or not freed:
            return
        if self._blocked is None or len(freed[0].left) < self._blocked[2]:
            first = next(seat for seat in freed[0].seats if seat.uid in waiting)
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
        keyed.append((seat.hardness, number))
        if number % STEP == STEP - 1:
            yield 2 * STEP * LOOK
    return [seats[number] for _, number in sorted(keyed)]


def _hash(seat: Seat) -> int:
    return hash(seat.likeness)
