"""Which nodes a single pod is offered: those with about the best score, among which kube-scheduler's scores decide.

A member that joins a running gang is offered nodes near the gang, if any of them has capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from extender.engine.placement.indexes import Indexes
from extender.engine.state import intree
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.types.settings import Settings
from protos.contract.objects import Pod

FIRST = 64
"""So many of the best nodes are first compared with the requested ones."""
Ranked = Iterable[tuple[str, int]]
"""Nodes and their scores, best first."""


class Offers:
    """Chooses the nodes by the indexes. Owns nothing."""

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
        """The offered nodes of `nodes`, the best first; none if no node has the GPUs.

        `beside`: the nodes of other members; `admits`: whether a node is not reserved for other pods. A pod with
        preferences of its own is offered all nodes about equal to the best. A pod without GPUs is never refused: it is
        offered the nodes whose GPUs need its CPU and memory least.
        """
        everywhere = self._settings.in_tree_preferences or intree.has_preferences(pod)
        if state.ask is None and everywhere:
            return tuple(nodes)
        if len(nodes) < len(self._nodes):
            ranked: Ranked = self._indexes.among(state.shape, nodes)
        else:
            ranked = _asked(self._indexes.of(state.shape).ranked(), nodes)
        if admits is not None:
            ranked = (found for found in ranked if admits(self._nodes[found[0]]))
        if beside and not everywhere:
            ranked = self._near(list(ranked), beside)
        equals = self._equals(ranked)
        if state.ask is None:
            return tuple(equals) or tuple(nodes)
        return tuple(equals if everywhere else islice(equals, self._settings.offer_limit))

    def _equals(self, ranked: Ranked) -> Iterator[str]:
        """The nodes within the score tolerance of the best."""
        least: int | None = None
        for name, points in ranked:
            least = points - self._settings.score_tolerance if least is None else least
            if points < least:
                return
            yield name

    def _near(self, ranked: Sequence[tuple[str, int]], beside: Sequence[str]) -> Ranked:
        """The nodes in a domain of the others, by the nearest label that has any; all nodes if no label has."""
        for key in self._settings.locality_labels:
            there = {self._nodes[name].labels.get(key) for name in beside if name in self._nodes} - {None}
            near = [found for found in ranked if self._nodes[found[0]].labels.get(key) in there]
            if near:
                return near
        return ranked


def _asked(ranked: Iterator[tuple[str, int]], nodes: Sequence[str]) -> Ranked:
    """The ranked nodes that are in `nodes`. The first few mostly suffice: then no set of thousands of names is made."""
    first = list(islice(ranked, FIRST))
    here = {name for name, _ in first}.intersection(nodes)
    yield from (found for found in first if found[0] in here)
    if len(first) == FIRST:
        asked = frozenset(nodes)
        yield from (found for found in ranked if found[0] in asked)
