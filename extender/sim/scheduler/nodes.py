"""Nodes with their pods in the scheduler's cache, and simplified in-tree filters and scores. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from extender.sim import podspec
from extender.sim.podspec import Amounts, Object
from extender.sim.scheduler.config import Config, Profile
from extender.sim.scheduler.queue import Event
from protos.contract.selector import Requirement


class Refusal(NamedTuple):
    """A plugin refuses a node."""

    plugin: str
    reasons: tuple[str, ...]


class Placed(NamedTuple):
    """The resources and host ports of a pod on its node."""

    node: str
    asked: Amounts
    ports: frozenset[tuple[str, int]] = frozenset()


class NodeInfo:
    """A node with its pods, including assumed ones."""

    def __init__(self, node: Object) -> None:
        self.pods: dict[str, Placed] = {}
        self.used: Amounts = {}
        self.set_node(node)

    def set_node(self, node: Object) -> None:
        self.node = node
        self.name: str = node["metadata"]["name"]
        self.allocatable = podspec.amounts(node.get("status", {}).get("allocatable"))
        self.labels: Mapping[str, str] = node["metadata"].get("labels") or {}
        self.taints = taints(node)

    def add(self, uid: str, pod: Placed) -> None:
        self.remove(uid)
        self.pods[uid] = pod
        for resource, amount in pod.asked.items():
            self.used[resource] = self.used.get(resource, 0) + amount

    def remove(self, uid: str) -> None:
        if pod := self.pods.pop(uid, None):
            for resource, amount in pod.asked.items():
                self.used[resource] -= amount


def taints(node: Object) -> list[Object]:
    """The node's taints, with the not-ready taint that the node lifecycle controller would add."""
    ready = podspec.condition(node, "Ready")
    not_ready: Object = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    return [
        *(node.get("spec", {}).get("taints") or ()),
        *([not_ready] if ready is None or ready["status"] != "True" else []),
    ]


def tolerates(pod: Object, taint: Object) -> bool:
    """Whether one of the pod's tolerations matches the taint."""
    for t in pod["spec"].get("tolerations") or ():
        if t.get("effect") not in (None, "", taint["effect"]):
            continue
        if t.get("operator", "Equal") == "Exists":
            if t.get("key") in (None, "", taint["key"]):
                return True
        elif t.get("key") == taint["key"] and t.get("value", "") == taint.get("value", ""):
            return True
    return False


def _affinity_matches(pod: Object, node: NodeInfo) -> bool:
    wanted = pod["spec"].get("nodeSelector") or {}
    if any(node.labels.get(k) != v for k, v in wanted.items()):
        return False
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return affinity is None or any(_term_matches(term, node) for term in affinity["nodeSelectorTerms"])


def _term_matches(term: Mapping[str, Any], node: NodeInfo) -> bool:
    fields = {"metadata.name": node.name}
    by_label, by_field = term.get("matchExpressions") or (), term.get("matchFields") or ()
    pairs = [(node.labels, e) for e in by_label] + [(fields, e) for e in by_field]
    return bool(pairs) and all(msgspec.convert(e, Requirement).met(labels) for labels, e in pairs)


class InTree:
    """The in-tree plugins of one profile."""

    def __init__(self, config: Config, profile: Profile) -> None:
        self._fit, self._ignored_everywhere = profile.fit_args, config.ignored_resources()
        self._checks = {
            "NodeUnschedulable": self._unschedulable,
            "NodeName": self._other_name,
            "TaintToleration": self._untolerated,
            "NodeAffinity": self._mismatch,
            "NodePorts": self._port_taken,
        }

    def filter(self, pod: Object, asked: Amounts, node: NodeInfo, nominated: Iterable[Amounts]) -> Refusal | None:
        """The refusal of a pod that does not fit beside the node's pods and the ``nominated`` requests, or None."""
        for plugin, check in self._checks.items():
            if reason := check(pod, node):
                return Refusal(plugin, (reason,))
        if reasons := self._insufficient(asked, node, list(nominated)):
            return Refusal("NodeResourcesFit", tuple(reasons))
        return None

    @staticmethod
    def _unschedulable(pod: Object, node: NodeInfo) -> str:
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        blocked = node.node.get("spec", {}).get("unschedulable") and not tolerates(pod, taint)
        return "node(s) were unschedulable" if blocked else ""

    @staticmethod
    def _other_name(pod: Object, node: NodeInfo) -> str:
        wanted = podspec.node_of(pod)
        return "node(s) didn't match the requested node name" if wanted not in ("", node.name) else ""

    @staticmethod
    def _untolerated(pod: Object, node: NodeInfo) -> str:
        for taint in node.taints:
            if taint["effect"] in ("NoSchedule", "NoExecute") and not tolerates(pod, taint):
                return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        return ""

    @staticmethod
    def _mismatch(pod: Object, node: NodeInfo) -> str:
        return "" if _affinity_matches(pod, node) else "node(s) didn't match Pod's node affinity/selector"

    @staticmethod
    def _port_taken(pod: Object, node: NodeInfo) -> str:
        wanted = podspec.host_ports(pod)
        taken = wanted and any(wanted & other.ports for other in node.pods.values())
        return "node(s) didn't have free ports for the requested pod ports" if taken else ""

    def _insufficient(self, asked: Amounts, node: NodeInfo, nominated: Sequence[Amounts]) -> list[str]:
        reasons = []
        if len(node.pods) + len(nominated) + 1 > node.allocatable.get("pods", 0):
            reasons.append("Too many pods")
        for resource, amount in asked.items():
            if amount == 0 or resource in self._ignored_everywhere or self._fit.ignores(resource):
                continue
            promised = sum(other.get(resource, 0) for other in nominated)
            if amount > node.allocatable.get(resource, 0) - node.used.get(resource, 0) - promised:
                reasons.append(f"Insufficient {resource}")
        return reasons

    def score(self, asked: Amounts, node: NodeInfo) -> int:
        """LeastAllocated over cpu and memory, 0 to 100."""
        shares = []
        for resource in ("cpu", "memory"):
            total = node.allocatable.get(resource, 0)
            left = total - node.used.get(resource, 0) - asked.get(resource, 0)
            shares.append(max(0, left) * 100 // total if total else 0)
        return sum(shares) // len(shares)


def node_events(old: Object, new: Object) -> list[Event]:
    """The queue events of a node's update; a heartbeat causes none."""

    def conditions(node: Object) -> dict[str, str]:
        return {c["type"]: c["status"] for c in node.get("status", {}).get("conditions") or ()}

    def taint_state(node: Object) -> tuple[Any, Any]:
        return node.get("spec", {}).get("taints"), node.get("spec", {}).get("unschedulable")

    changed = {
        Event.NODE_ALLOCATABLE: old.get("status", {}).get("allocatable") != new.get("status", {}).get("allocatable"),
        Event.NODE_LABELS: old["metadata"].get("labels") != new["metadata"].get("labels"),
        Event.NODE_TAINTS: taint_state(old) != taint_state(new),
        Event.NODE_ANNOTATIONS: old["metadata"].get("annotations") != new["metadata"].get("annotations"),
        Event.NODE_CONDITIONS: conditions(old) != conditions(new),
    }
    return [event for event, happened in changed.items() if happened]
