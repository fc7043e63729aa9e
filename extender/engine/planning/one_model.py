"""Members of a gang that ask alike get GPUs of one model, unless they allow several: the models that a plan tries.

With one such request in a gang every model is tried, that of the best node first. With several, so many combinations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from itertools import islice, product

import msgspec

from extender.engine.planning.attempt import LOOK, PIECE, STEP, TRY, ClusterView, batched
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Assignment, Seat
from extender.engine.types.shape import Shape, of_model
from protos.contract.ask import PodAsk
from protos.contract.selection import ANYTHING

MOST = 16
"""Combinations that are tried."""


class Mixture(msgspec.Struct, frozen=True):
    """The gang would fit only with GPUs of several models for equal members."""


def undecided(view: ClusterView, seats: Sequence[Seat]) -> list[PodAsk]:
    """The requests of several of these members, which GPUs of several models would suit."""
    if len(view.models(ANYTHING)) < 2:
        return []
    counts = Counter([seat.ask for seat in seats])
    several = (ask for ask, count in counts.items() if ask is not None and count > 1 and not ask.selection.mixed)
    return [ask for ask in several if len(view.models(ask.selection)) > 1]


def choices(
    view: ClusterView, seats: Sequence[Seat], asks: Sequence[PodAsk]
) -> Generator[int, None, list[dict[PodAsk, str]]]:
    """The ways in which each of these requests of the members gets one model, the best first."""
    models = []
    for ask in asks:
        like = next(seat for seat in seats if seat.ask == ask)
        models.append((yield from _best_first(view, like.shape, ask)))
    return [dict(zip(asks, chosen, strict=True)) for chosen in islice(product(*models), MOST)]


def of_choice(seats: Sequence[Seat], choice: Mapping[PodAsk, str]) -> Generator[int, None, list[Seat]]:
    """These members, each restricted to its model."""
    found: list[Seat] = []
    for batch in batched(seats):
        found += [restricted(seat, choice) for seat in batch]
        yield STEP * LOOK
    return found


def _best_first(view: ClusterView, like: Shape, ask: PodAsk) -> Generator[int, None, list[str]]:
    """The models, by the score of the best node for one member; those without room now are last."""
    best: list[tuple[bool, int, str]] = []
    for model in view.models(ask.selection):
        shape = like._replace(ask=of_model(ask, model))
        while view.indexes.prepare(shape, STEP, aged=True):
            yield len(ask.containers) * STEP * TRY
        yield PIECE
        score = next((score for _, score in view.indexes.of(shape).ranked()), None)
        best.append((score is None, -(score or 0), model))
    return [model for *_, model in sorted(best)]


def restricted(seat: Seat, choice: Mapping[PodAsk, str]) -> Seat:
    """This member, restricted to its model."""
    if seat.ask is None or seat.ask not in choice:
        return seat
    return msgspec.structs.replace(seat, ask=of_model(seat.ask, choice[seat.ask]))


def mixes(
    asks: Sequence[PodAsk], seats: Sequence[Seat], assignments: Mapping[str, Assignment], nodes: Mapping[str, NodeState]
) -> bool:
    """Whether members with one of these requests get GPUs of several models; unknown ones are a model too."""
    models: dict[PodAsk, set[str]] = {ask: set() for ask in asks}
    for seat in seats:
        if seat.ask in models:
            assignment = assignments[seat.uid]
            models[seat.ask] |= models_on(nodes.get(assignment.node), assignment.charges)
    return any(len(found) > 1 for found in models.values())


def models_on(node: NodeState | None, uuids: Collection[str]) -> set[str]:
    """The models of these GPUs of a node, "" for those of a node without inventory."""
    if node is None or node.books is None:
        return {""}
    return {book.gpu.model for uuid in uuids if (book := node.books.gpus.get(uuid)) is not None}
