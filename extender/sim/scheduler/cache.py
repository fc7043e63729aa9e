"""What the scheduler knows of the cluster from its watches: nodes, pods on them, assumed and nominated pods."""

from __future__ import annotations

from collections.abc import Iterator

from extender.sim import podspec
from extender.sim.podspec import Amounts, Object
from extender.sim.scheduler.nodes import NodeInfo, Placed


class Cache:
    """Nodes with their pods. An assumed pod counts on its node until the watch shows it there or it is forgotten."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self._placed: dict[str, Placed] = {}  # by UID, on nodes unknown yet as well
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
        """The pod is on ``node``, or is assumed to be there soon."""
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
        """Take an assumed pod back; False when it is not assumed (any more)."""
        if uid not in self._assumed:
            return False
        self.remove(uid)
        return True

    def is_nominated(self, uid: str) -> bool:
        return uid in self._nominated

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def nominate(self, pod: Object) -> None:
        """Note the node a waiting pod is nominated to (or that it is to none)."""
        node = pod.get("status", {}).get("nominatedNodeName")
        if node:
            entry = (node, pod["spec"].get("priority", 0), podspec.pod_requests(pod))
            self._nominated[podspec.uid(pod)] = entry
        else:
            self._nominated.pop(podspec.uid(pod), None)

    def nominated(self, node: str, pod: Object) -> Iterator[Amounts]:
        """What other waiting pods of at least this pod's priority ask of the node they are nominated to."""
        if not self._nominated:
            return
        priority, own = pod["spec"].get("priority", 0), podspec.uid(pod)
        for uid, (where, theirs, asked) in self._nominated.items():
            if where == node and theirs >= priority and uid != own:
                yield asked
