"""Stands in for Cluster Autoscaler: it adds real nodes for pods that are unschedulable, and for ProvisioningRequests.

As its documentation and sources say: it knows a group without nodes by the tags of the group; it decides by sums per
node; a node with a startup taint is one that comes, so pods that will fit there need no other; pods that consume a
ProvisioningRequest are left alone; a request is accepted, and then its pods get nodes together, or it fails.
Source: kubernetes/autoscaler, cluster-autoscaler/FAQ.md and processors/provreq; autoscaling.x-k8s.io/v1.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from protos.contract import names, provisioning
from tests.cluster.api import Json
from tests.cluster.gangshare import Gangshare

REQUESTS = f"/apis/{provisioning.API_VERSION}/{provisioning.PLURAL}"
_TEMPLATE = "k8s.io/cluster-autoscaler/node-template"
Amounts = Mapping[str, int]


def definition() -> Json:
    """The kind ProvisioningRequest, as Cluster Autoscaler installs it, with the fields that matter here."""
    reference = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "maxLength": 253}}}
    pod_set = {
        "type": "object",
        "required": ["count", "podTemplateRef"],
        "properties": {"count": {"type": "integer", "minimum": 1}, "podTemplateRef": reference},
    }
    spec = {
        "type": "object",
        "required": ["podSets", "provisioningClassName"],
        "properties": {
            "podSets": {"type": "array", "minItems": 1, "maxItems": 32, "items": pod_set},
            "provisioningClassName": {"type": "string", "maxLength": 253},
        },
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}],
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": status}}
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{provisioning.PLURAL}.{provisioning.GROUP}",
                     "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"}},
        "spec": {
            "group": provisioning.GROUP,
            "scope": "Namespaced",
            "names": {"kind": provisioning.KIND, "plural": provisioning.PLURAL, "singular": "provisioningrequest"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }  # fmt: skip


class Autoscaler:
    """One group of nodes, which may have none. Each `look` is one scan."""

    def __init__(self, sharing: Gangshare, tags: str, machine: str, most: int) -> None:
        """`tags`: those of the group, a line each. `machine`: what its nodes are. `most`: how many there may be."""
        self.sharing, self.cluster, self.machine, self.most = sharing, sharing.cluster, machine, most
        self.added: list[str] = []
        self.labels, self.template = _template(tags)

    def look(self) -> None:
        """Add nodes for the pods and requests that need some."""
        for request in self.cluster.api.items(REQUESTS):
            if not request.get("status", {}).get("conditions"):
                self._serve(request)
        free = self._free()
        lacking = [pod for pod in map(_asked, filter(_unschedulable, self.cluster.pods())) if not _fits(pod, free)]
        self._add(self._nodes_for(lacking))

    def _serve(self, request: Json) -> None:
        self._say(request, "Accepted")
        free, pods = self._free(), list[Amounts]()
        for each in request["spec"]["podSets"]:
            where = f"/api/v1/namespaces/{request['metadata']['namespace']}/podtemplates"
            template = self.cluster.api.get(f"{where}/{each['podTemplateRef']['name']}")["template"]
            pods += [_asked(template)] * each["count"]
        needed = self._nodes_for([pod for pod in pods if not _fits(pod, free)])
        possible = 0 <= needed <= self.most - len(self.added)
        if possible:
            self._add(needed)
        self._say(request, "Provisioned" if possible else "Failed")

    def _nodes_for(self, pods: Sequence[Amounts]) -> int:
        """How many nodes of the group take these pods; -1 if none takes one of them."""
        made: list[dict[str, int]] = []
        for pod in pods:
            if not _fits(pod, made):
                made.append(dict(self.template))
                if not _fits(pod, made):
                    return -1
        return len(made)

    def _add(self, count: int) -> None:
        config = {"registerWithTaints": [{"key": names.STARTUP_TAINT, "effect": "NoSchedule"}]}
        labels = ",".join(f"{key}={value}" for key, value in self.labels.items())
        for _ in range(min(count, self.most - len(self.added))):
            node = self.cluster.add_node(kubelet_config=config, kubelet_args=[f"--node-labels={labels}"])
            self.added.append(node.name)

    def start_plugins(self) -> None:
        """The DaemonSet's pods start on the nodes that were added."""
        for node in self.added:
            if node not in self.sharing.plugins:
                self.sharing.add(node, self.machine)

    def _free(self) -> list[dict[str, int]]:
        """What each node has left; one that comes has what the template says."""
        found = {}
        for node in self.cluster.api.items("/api/v1/nodes"):
            comes = any(taint["key"] == names.STARTUP_TAINT for taint in node["spec"].get("taints", []))
            offered = node["status"]["allocatable"]
            here = self.template if comes else {key: int(offered.get(key, 0)) for key in self.template}
            found[node["metadata"]["name"]] = dict(here)
        for pod in self.cluster.pods():
            if pod["spec"].get("nodeName") in found and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                for key, amount in _asked(pod).items():
                    found[pod["spec"]["nodeName"]][key] -= amount
        return list(found.values())

    def _say(self, request: Json, state: str) -> None:
        meta = request["metadata"]
        path = f"/apis/{provisioning.API_VERSION}/namespaces/{meta['namespace']}/{provisioning.PLURAL}/{meta['name']}"
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": state, "status": "True", "reason": state, "message": "", "lastTransitionTime": now}
        before = self.cluster.api.get(path).get("status", {}).get("conditions", [])
        self.cluster.api.patch(f"{path}/status", {"status": {"conditions": [*before, condition]}})


def _template(tags: str) -> tuple[dict[str, str], dict[str, int]]:
    """Labels and amounts of a new node, by the tags of its group."""
    labels: dict[str, str] = {}
    amounts: dict[str, int] = {}
    for line in tags.splitlines():
        key, _, value = line.partition("=")
        kind, _, name = key.removeprefix(f"{_TEMPLATE}/").partition("/")
        if kind == "resources":
            amounts[name] = int(value)
        elif kind == "label":
            labels[name] = value
    return labels, amounts


def _unschedulable(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    said = any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)
    return said and provisioning.CONSUMES not in (pod["metadata"].get("annotations") or {})


def _asked(pod: Json) -> dict[str, int]:
    """The amounts of extended resources that a pod requests."""
    found: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        limits: Mapping[str, Any] = container.get("resources", {}).get("limits", {})
        for key, amount in limits.items():
            if "/" in key:
                found[key] = found.get(key, 0) + int(amount)
    return found


def _fits(pod: Amounts, nodes: Sequence[dict[str, int]]) -> bool:
    """Whether a node has room; if so, the pod takes it."""
    for node in nodes:
        if all(node.get(key, 0) >= amount for key, amount in pod.items()):
            for key, amount in pod.items():
                node[key] -= amount
            return True
    return False
