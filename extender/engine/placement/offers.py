"""Which nodes a single pod is offered: those about equal to our best, among which kube-scheduler's own wishes decide.

A member that joins a gang which runs is offered those near the gang, if any of them has room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from extender.engine.placement.index import Indexes
from extender.engine.state import dialect
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.types.settings import Settings
from protos.contract.objects import Pod

FIRST = 64
"""Nodes looked for first among those that are asked for."""
Ranked = Iterable[tuple[str, int]]
"""Nodes and their scores, best first."""


class Offers:
    """Chooses them."""

    def __init__(self, nodes: Mapping[str, NodeState], indexes: Indexes, settings: Settings) -> None:
        self._nodes, self._indexes, self._settings = nodes, indexes, settings

    def of(
        self,
        state: PodState,
        pod: Pod,
        nodes: Sequence[str],
        beside: Sequence[str] = (),
        admits: Callable[[NodeState], bool] | None = None,
    ) -> tuple[str, ...]:
        """Of these nodes, best first; none if no node has the GPUs. `beside`: where others of its gang are;
        `admits`: whether a node is not kept for others.

        A pod with wishes of its own is offered all that are about equal, not only some. One that asks no GPUs is
        refused by nobody: it is offered the nodes whose GPUs miss its CPU and memory least.
        """
        everywhere = self._settings.in_tree_preferences or dialect.has_preferences(pod)
        if state.ask is None and everywhere:
            return tuple(nodes)
        among = None if len(nodes) >= len(self._nodes) else frozenset(nodes)
        ranked: Ranked = _asked(self._indexes.of(state.shape).ranked(among), nodes)
        if admits is not None:
            ranked = (found for found in ranked if found[0] not in self._nodes or admits(self._nodes[found[0]]))
        if beside and not everywhere:
            ranked = self._near(list(ranked), beside)
        equals = self._equals(ranked)
        if state.ask is None:
            return tuple(equals) or tuple(nodes)
        return tuple(equals if everywhere else islice(equals, self._settings.offer_limit))

    def _equals(self, ranked: Ranked) -> Iterator[str]:
        """Those within the band of the best."""
        least: int | None = None
        for name, points in ranked:
            least = points - self._settings.score_tolerance if least is None else least
            if points < least:
                return
            yield name

    def _near(self, ranked: Sequence[tuple[str, int]], beside: Sequence[str]) -> Ranked:
        """Those in the same place as the others, by the nearest label by which there are any; all, if by none."""
        for key in self._settings.locality_labels:
            there = {self._nodes[name].labels.get(key) for name in beside if name in self._nodes} - {None}
            near = [found for found in ranked if self._nodes[found[0]].labels.get(key) in there]
            if near:
                return near
        return ranked


def _asked(ranked: Iterator[tuple[str, int]], nodes: Sequence[str]) -> Ranked:
    """Those that are asked for: for most answers the first few are enough, and no set is made of thousands of names."""
    first = list(islice(ranked, FIRST))
    here = {name for name, _ in first}.intersection(nodes)
    yield from (found for found in first if found[0] in here)
    if len(first) == FIRST:
        asked = frozenset(nodes)
        yield from (found for found in ranked if found[0] in asked)
