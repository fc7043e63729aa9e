"""The nodes ranked for each spec. Only nodes that changed since the last pod of the spec are scored again."""

from __future__ import annotations

import random

import msgspec
from sortedcontainers import SortedList

from extender.sim.openb.baselines import Policy
from extender.sim.openb.cluster import Assignment, Cluster
from extender.sim.openb.trace import Pod, Spec


class _Ranking(msgspec.Struct):
    """The nodes that take one spec, best first."""

    key_of: dict[int, int]
    """By node: its rank by name minus its score times the number of nodes."""
    keys: SortedList[int]
    read: int = 0
    """The number of cluster changes that are included."""


class Ranked:
    """A policy that scores every node. The highest score wins; of equal scores, the first name in text order."""

    def __init__(self, cluster: Cluster, policy: Policy, draw: random.Random | None = None) -> None:
        """With `draw`, any node that takes the pod may win, whatever its score."""
        self._cluster, self._policy, self._draw = cluster, policy, draw
        names = [node.name for node in cluster.nodes]
        self._by_name = sorted(range(len(names)), key=names.__getitem__)
        self._rank = {node: rank for rank, node in enumerate(self._by_name)}
        self._rankings: dict[Spec, _Ranking] = {}

    def choose(self, pod: Pod) -> Assignment | None:
        """The pod's assignment, None if it fits no node."""
        keys = self._ranking(pod.spec).keys
        if not keys:
            return None
        key = self._draw.choice(keys) if self._draw else keys[0]
        node = self._by_name[key % len(self._by_name)]
        return Assignment(node, self._policy.gpus(self._cluster.rooms[node], pod.spec))

    def _ranking(self, spec: Spec) -> _Ranking:
        """A node that does not take the spec now never will, because pods never leave."""
        ranking = self._rankings.get(spec)
        if ranking is None:
            rooms = enumerate(self._cluster.rooms)
            key_of = {node: self._key(node, spec) for node, room in rooms if room.takes(spec)}
            ranking = self._rankings[spec] = _Ranking(key_of, SortedList(key_of.values()))
        else:
            for node in ranking.key_of.keys() & self._cluster.changes[ranking.read :]:
                self._update(ranking, node, spec)
        ranking.read = len(self._cluster.changes)
        return ranking

    def _update(self, ranking: _Ranking, node: int, spec: Spec) -> None:
        ranking.keys.remove(ranking.key_of.pop(node))
        if self._cluster.rooms[node].takes(spec):
            key = ranking.key_of[node] = self._key(node, spec)
            ranking.keys.add(key)

    def _key(self, node: int, spec: Spec) -> int:
        return self._rank[node] - self._policy.score(self._cluster.rooms[node], spec) * len(self._by_name)
