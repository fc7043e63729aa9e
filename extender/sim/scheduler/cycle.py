"""The scheduling cycle: nominated node, in-tree filters, extenders, scores."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

from extender.sim import podspec
from extender.sim.podspec import Object
from extender.sim.scheduler.cache import Cache
from extender.sim.scheduler.client import ExtenderClient, ExtenderError
from extender.sim.scheduler.config import Config, Profile
from extender.sim.scheduler.nodes import InTree, NodeInfo
from extender.sim.scheduler.queue import EXTENDER

_SAMPLE_AT_LEAST = 100


class NoNodes(Exception):
    """The cluster has no nodes."""


class FitError(Exception):
    """No node fits: the message of the pod's condition, and the plugins that refused nodes."""

    def __init__(self, nodes: int, reasons: Iterable[str], plugins: frozenset[str]) -> None:
        counts = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
        message = f"0/{nodes} nodes are available:"
        super().__init__(f"{message} {', '.join(counts)}." if counts else message)
        self.plugins = plugins


class Cycle:
    """Finds nodes for pods, one pod at a time. ``random`` breaks ties."""

    def __init__(self, config: Config, cache: Cache, extenders: Sequence[ExtenderClient], random: Random) -> None:
        self._config, self._cache, self._random = config, cache, random
        self._extenders = sorted(extenders, key=lambda e: e.config.ignorable)
        self._in_tree = {p.scheduler_name: InTree(config, p) for p in config.profiles}
        self._start = 0  # first node of the next search

    async def find(self, pod: Object, profile: Profile) -> str:
        """The name of the node for the pod; raises FitError, ExtenderError or NoNodes."""
        if not self._cache.nodes:
            raise NoNodes("no nodes available to schedule pods")
        nominated = self._cache.nodes.get(pod["status"].get("nominatedNodeName", ""))
        if nominated and await self._nominated_fits(pod, profile, nominated):
            return nominated.name
        search = _Search(pod, self._in_tree[profile.scheduler_name], self._cache)
        nodes = list(self._cache.nodes.values())
        search.in_tree(nodes[self._start :] + nodes[: self._start], self._enough(profile))
        self._start = (self._start + search.looked_at) % len(self._cache.nodes)
        await search.extended(self._extenders)
        if not search.feasible:
            raise FitError(len(self._cache.nodes), search.reasons, frozenset(search.plugins))
        if len(search.feasible) == 1:
            return search.feasible[0].name
        return await self._best(pod, profile, search.feasible)

    async def _nominated_fits(self, pod: Object, profile: Profile, node: NodeInfo) -> bool:
        search = _Search(pod, self._in_tree[profile.scheduler_name], self._cache)
        search.in_tree([node], 1)
        try:
            await search.extended(self._extenders)
        except ExtenderError:
            return False
        return bool(search.feasible)

    def _enough(self, profile: Profile) -> int:
        """The number of feasible nodes after which the search stops."""
        total = len(self._cache.nodes)
        share = profile.percentage_of_nodes_to_score or self._config.percentage_of_nodes_to_score or 0
        if total < _SAMPLE_AT_LEAST or share >= 100:
            return total
        return max(_SAMPLE_AT_LEAST, total * (share or max(5, 50 - total // 125)) // 100)

    async def _best(self, pod: Object, profile: Profile, nodes: Sequence[NodeInfo]) -> str:
        names, asked = [n.name for n in nodes], podspec.pod_requests(pod)
        in_tree = self._in_tree[profile.scheduler_name]
        total = {n.name: in_tree.score(asked, n) for n in nodes}
        asking = [e for e in self._extenders if e.config.prioritize_verb and e.interested(pod)]
        for scores in await asyncio.gather(*(e.prioritize(pod, names) for e in asking)):
            for name, score in scores.items():
                if name in total:
                    total[name] += score
        highest = max(total.values())
        return self._random.choice([name for name in names if total[name] == highest])


class _Search:
    """The feasible nodes of one attempt, and the reasons of the others."""

    def __init__(self, pod: Object, in_tree: InTree, cache: Cache) -> None:
        self._pod, self._in_tree, self._cache = pod, in_tree, cache
        self.feasible: list[NodeInfo] = []
        self.reasons: list[str] = []
        self.plugins: set[str] = set()
        self.looked_at = 0

    def in_tree(self, nodes: Iterable[NodeInfo], enough: int) -> None:
        asked = podspec.pod_requests(self._pod)
        for node in nodes:
            self.looked_at += 1
            refusal = self._in_tree.filter(self._pod, asked, node, self._cache.nominated(node.name, self._pod))
            if refusal is None:
                self.feasible.append(node)
            else:
                self.plugins.add(refusal.plugin)
                self.reasons.extend(refusal.reasons)
            if len(self.feasible) >= enough:
                break

    async def extended(self, extenders: Sequence[ExtenderClient]) -> None:
        """Call filter of the extenders in turn, each with the nodes that the last one returned."""
        for extender in extenders:
            if not self.feasible:
                return
            if not extender.config.filter_verb or not extender.interested(self._pod):
                continue
            try:
                feasible, reasons = await extender.filter(self._pod, [n.name for n in self.feasible])
            except ExtenderError:
                if extender.config.ignorable:
                    continue
                raise
            if len(feasible) < len(self.feasible):
                self.plugins.add(EXTENDER)
            self.feasible = [n for n in self.feasible if n.name in feasible]
            self.reasons.extend(reasons)
