"""The scheduling cycle: nominated node, in-tree filters, extenders, scores."""

from __future__ import annotations

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
    """Finds nodes for pods, one pod at a time."""

    def __init__(self, config: Config, cache: Cache, extenders: Sequence[ExtenderClient]) -> None:
        self._cache = cache
        self._random = Random(0)  # breaks ties
        self._extenders = sorted(extenders, key=lambda e: e.config.ignorable)
        self._in_tree = {p.scheduler_name: InTree(config, p) for p in config.profiles}

    async def find(self, pod: Object, profile: Profile) -> str:
        """The name of the node for the pod; raises FitError, ExtenderError or NoNodes."""
        if not self._cache.nodes:
            raise NoNodes("no nodes available to schedule pods")
        in_tree = self._in_tree[profile.scheduler_name]
        nominated = self._cache.nodes.get(pod["status"].get("nominatedNodeName", ""))
        if nominated and await self._nominated_fits(pod, in_tree, nominated):
            return nominated.name
        search = _Search(pod, in_tree, self._cache)
        search.in_tree(self._cache.nodes.values())
        await search.extended(self._extenders)
        if not search.feasible:
            raise FitError(len(self._cache.nodes), search.reasons, frozenset(search.plugins))
        asked = podspec.pod_requests(pod)
        scores = {node.name: in_tree.score(asked, node) for node in search.feasible}
        highest = max(scores.values())
        return self._random.choice([name for name, score in scores.items() if score == highest])

    async def _nominated_fits(self, pod: Object, in_tree: InTree, node: NodeInfo) -> bool:
        search = _Search(pod, in_tree, self._cache)
        search.in_tree([node])
        try:
            await search.extended(self._extenders)
        except ExtenderError:
            return False
        return bool(search.feasible)


class _Search:
    """The feasible nodes of one attempt, and the reasons of the others."""

    def __init__(self, pod: Object, in_tree: InTree, cache: Cache) -> None:
        self._pod, self._in_tree, self._cache = pod, in_tree, cache
        self.feasible: list[NodeInfo] = []
        self.reasons: list[str] = []
        self.plugins: set[str] = set()

    def in_tree(self, nodes: Iterable[NodeInfo]) -> None:
        asked = podspec.pod_requests(self._pod)
        for node in nodes:
            refusal = self._in_tree.filter(self._pod, asked, node, self._cache.nominated(node.name, self._pod))
            if refusal is None:
                self.feasible.append(node)
            else:
                self.plugins.add(refusal.plugin)
                self.reasons.extend(refusal.reasons)

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
