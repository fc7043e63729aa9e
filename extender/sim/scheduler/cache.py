"""The scheduler's cache of the cluster: nodes with their pods, assumed pods, nominated pods."""

from __future__ import annotations

from collections.abc import Iterator

from extender.sim import podspec
from extender.sim.podspec import Amounts, Object
from extender.sim.scheduler.nodes import NodeInfo, Placed


class Cache:
    """Nodes with their pods. An assumed pod counts on its node until the watch confirms it or it is forgotten."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self._placed: dict[str, Placed] = {}  # by UID; the node may be unknown
        self._assumed: set[str] = set()
        self._nominated: dict[str, tuple[str, int, Amounts]] = {}  # uid → node, priority, requests

    def set_node(self, node: Object) -> None:
        name = node["metadata"]["name"]
        if name in self.nodes:
            self.nodes[name].set_node(node)
            return
        info = self.nodes[name] = NodeInfo(node)
        for uid, pod in self._placed.items():
            if pod.node == name:
                info.add(uid, pod)

    def remove_node(self, name: str) -> None:
        self.nodes.pop(name, None)

    def place(self, pod: Object, node: str, assumed: bool = False) -> None:
        """Add a pod that is bound to ``node``, or assumed there until its bind has ended."""
        uid, placed = podspec.uid(pod), Placed(node, podspec.pod_requests(pod), podspec.host_ports(pod))
        self.remove(uid)
        self._placed[uid] = placed
        if assumed:
            self._assumed.add(uid)
        if node in self.nodes:
            self.nodes[node].add(uid, placed)

    def remove(self, uid: str) -> None:
        placed = self._placed.pop(uid, None)
        self._assumed.discard(uid)
        self._nominated.pop(uid, None)
        if placed and placed.node in self.nodes:
            self.nodes[placed.node].remove(uid)

    def forget(self, uid: str) -> bool:
        """Remove an assumed pod; False if it is not assumed."""
        if uid not in self._assumed:
            return False
        self.remove(uid)
        return True

    def is_nominated(self, uid: str) -> bool:
        return uid in self._nominated

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def nominate(self, pod: Object) -> None:
        """Set or clear the nominated node of a pending pod."""
        node = pod.get("status", {}).get("nominatedNodeName")
        if node:
            entry = (node, pod["spec"].get("priority", 0), podspec.pod_requests(pod))
            self._nominated[podspec.uid(pod)] = entry
        else:
            self._nominated.pop(podspec.uid(pod), None)

    def nominated(self, node: str, pod: Object) -> Iterator[Amounts]:
        """The requests of other pending pods of at least this priority that are nominated to the node."""
        if not self._nominated:
            return
        priority, own = pod["spec"].get("priority", 0), podspec.uid(pod)
        for uid, (where, theirs, asked) in self._nominated.items():
            if where == node and theirs >= priority and uid != own:
                yield asked
