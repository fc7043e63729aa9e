"""The nodes ranked for each spec. Only nodes that changed since the last pod of that spec are scored again."""

from __future__ import annotations

import random

from sortedcontainers import SortedList

from extender.sim.openb.baselines import Policy
from extender.sim.openb.cluster import Cluster, Spot
from extender.sim.openb.trace import Pod, Spec


class _Ranking:
    """The nodes that take one spec. Keys are rank less score times the number of nodes: best first, then by name."""

    def __init__(self, nodes: int) -> None:
        self.keys: SortedList[int] = SortedList()
        self.key_of: dict[int, int] = {}
        self.read = 0
        """How many of the cluster's changes are taken in."""
        self.nodes = nodes


class Ranked:
    """A policy that scores every node: the highest score wins, among equals the smallest name in text order."""

    def __init__(self, cluster: Cluster, policy: Policy, draw: random.Random | None = None) -> None:
        """With `draw` one of the nodes that take the pod is drawn, whatever its score."""
        self._cluster, self._policy, self._draw = cluster, policy, draw
        names = [node.name for node in cluster.nodes]
        self._by_name = sorted(range(len(names)), key=names.__getitem__)
        self._rank = {node: rank for rank, node in enumerate(self._by_name)}
        self._rankings: dict[Spec, _Ranking] = {}

    def choose(self, pod: Pod) -> Spot | None:
        """Where the pod goes, None if it fits nowhere."""
        keys = self._ranking(pod.spec).keys
        if not keys:
            return None
        key = self._draw.choice(keys) if self._draw else keys[0]
        node = self._by_name[key % len(self._by_name)]
        return Spot(node, self._policy.gpus(self._cluster.rooms[node], pod.spec))

    def _ranking(self, spec: Spec) -> _Ranking:
        ranking = self._rankings.get(spec)
        if ranking is None:
            ranking = self._rankings[spec] = self._make(spec)
        else:
            for node in set(self._cluster.changes[ranking.read :]):
                if node in ranking.key_of:
                    self._renew(ranking, node, spec)
        ranking.read = len(self._cluster.changes)
        return ranking

    def _make(self, spec: Spec) -> _Ranking:
        """A node that does not take the spec now never will, since pods never leave."""
        ranking = _Ranking(len(self._by_name))
        for node, room in enumerate(self._cluster.rooms):
            if room.takes(spec):
                ranking.key_of[node] = self._key(node, spec)
        ranking.keys.update(ranking.key_of.values())
        return ranking

    def _renew(self, ranking: _Ranking, node: int, spec: Spec) -> None:
        old = ranking.key_of[node]
        if not self._cluster.rooms[node].takes(spec):
            ranking.keys.remove(old)
            del ranking.key_of[node]
            return
        new = self._key(node, spec)
        if new != old:
            ranking.keys.remove(old)
            ranking.keys.add(new)
            ranking.key_of[node] = new

    def _key(self, node: int, spec: Spec) -> int:
        return self._rank[node] - self._policy.score(self._cluster.rooms[node], spec) * len(self._by_name)
