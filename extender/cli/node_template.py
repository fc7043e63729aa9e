"""What a node of a group will be like, in the words of each autoscaler. Pure.

Autoscalers decide by a template whether a new node would take a pod. For a group without nodes they know the instance
type only, and not what a device plugin will offer there. Sources: kubernetes/autoscaler, cloudprovider/aws/README.md,
cloudprovider/azure/azure_template.go, cloudprovider/gce/templates.go; kubernetes-sigs/karpenter, NodeOverlay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
import yaml

from extender.cli.errors import CommandError
from protos.contract import names
from protos.contract.objects import Node, Taint
from protos.contract.quantity import integer_or_zero

Cloud = Literal["aws", "gce", "azure", "karpenter"]
GPU_PRESENT = "nvidia.com/gpu.present"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9.-]")
"""What no name of an object may have; instance types of Azure have underscores."""
LABELS = (GPU_PRESENT, "nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.count", names.MPS)
"""Labels of a node that nodes of its group will have, too, and that pods or our DaemonSets select."""
PASSING = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
    "startup-taint.",
    "ignore-taint.",
)
"""Prefixes of taints that come and go; a template must not have them."""
PASSING_KEYS = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
AWS = "k8s.io/cluster-autoscaler/node-template"
AZURE = "k8s.io_cluster-autoscaler_node-template"
OVERLAY = "karpenter.sh/v1alpha1"


class NodeTemplate(msgspec.Struct, frozen=True):
    """What autoscalers cannot know of a new node."""

    name: str
    resources: Mapping[str, int]
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()


def of_node(node: Node) -> NodeTemplate:
    """The template of nodes like this one; raises CommandError if it offers no GPU."""
    offered = {name: integer_or_zero(amount) for name, amount in node.status.allocatable.items() if _is_ours(name)}
    if not any(offered.values()):
        raise CommandError(f"node {node.metadata.name} offers no GPU: expected a node on which the plugin runs")
    return NodeTemplate(
        node.metadata.name,
        {name: amount for name, amount in offered.items() if amount},
        {key: value for key, value in node.metadata.labels.items() if key in LABELS},
        tuple(taint for taint in node.spec.taints if _lasts(taint)),
    )


def with_more(template: NodeTemplate, labels: Iterable[str], taints: Iterable[str]) -> NodeTemplate:
    """The template with KEY=VALUE labels and KEY=VALUE:EFFECT taints of the user; raises CommandError."""
    given = dict(map(_label, labels))
    more = tuple(map(_taint, taints))
    return msgspec.structs.replace(
        template, labels={**template.labels, **given}, taints=tuple(dict.fromkeys((*template.taints, *more)))
    )


def render(template: NodeTemplate, cloud: Cloud, pool: str = "", instance_type: str = "") -> str:
    """The text for this autoscaler. Karpenter's object is for a NodePool, an instance type, or both."""
    if cloud == "karpenter":
        return yaml.safe_dump(overlay(template, pool, instance_type), sort_keys=False)
    return "".join(f"{line}\n" for line in _FORMS[cloud](template))


def overlay(template: NodeTemplate, pool: str, instance_type: str) -> dict[str, Any]:
    """Karpenter's NodeOverlay; raises CommandError without anything that says for which nodes."""
    chosen = {"karpenter.sh/nodepool": pool, "node.kubernetes.io/instance-type": instance_type}
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in chosen.items() if value]
    if not requirements:
        raise CommandError("a NodeOverlay needs --pool or --instance-type: it says which nodes have these GPUs")
    capacity = {name: str(amount) for name, amount in sorted(template.resources.items())}
    name = _NOT_IN_NAMES.sub("-", "-".join(("gangshare", *filter(None, (pool, instance_type)))).lower())
    spec = {"requirements": requirements, "capacity": capacity}
    return {"apiVersion": OVERLAY, "kind": "NodeOverlay", "metadata": {"name": name}, "spec": spec}


def _entries(template: NodeTemplate) -> Iterator[tuple[str, str, str]]:
    """Kind, key and value of all that is told, in the order of the tags."""
    yield from (("resources", name, str(amount)) for name, amount in sorted(template.resources.items()))
    yield from (("label", key, value) for key, value in sorted(template.labels.items()))
    yield from (("taint", taint.key, f"{taint.value}:{taint.effect}") for taint in template.taints)


def _aws(template: NodeTemplate) -> Iterable[str]:
    return (f"{AWS}/{kind}/{key}={value}" for kind, key, value in _entries(template))


def _azure(template: NodeTemplate) -> Iterable[str]:
    """Tags of Azure have no slashes."""
    for kind, key, value in _entries(template):
        escaped = key.replace("_", "~2") if kind == "label" else key
        yield f"{AZURE}_{kind}_{escaped.replace('/', '_')}={value}"


def _gce(template: NodeTemplate) -> Iterable[str]:
    """The variable of kube-env in the metadata of the instance template."""
    variables = {"node_labels": "label", "node_taints": "taint", "extended_resources": "resources"}
    entries = list(_entries(template))
    made = {
        name: ",".join(f"{key}={value}" for kind, key, value in entries if kind == wanted)
        for name, wanted in variables.items()
    }
    yield "AUTOSCALER_ENV_VARS: " + ";".join(f"{name}={text}" for name, text in made.items() if text)


_FORMS: dict[str, Callable[[NodeTemplate], Iterable[str]]] = {"aws": _aws, "gce": _gce, "azure": _azure}


def _is_ours(resource: str) -> bool:
    return names.DEFAULT_RESOURCES.has(resource) or resource.startswith((f"{names.DOMAIN}/", "aliyun.com/gpu-"))


def _lasts(taint: Taint) -> bool:
    return not taint.key.startswith(PASSING) and taint.key not in PASSING_KEYS


def _label(text: str) -> tuple[str, str]:
    key, given, value = text.partition("=")
    if not key or not given:
        raise CommandError(f"--label is {text!r}: expected KEY=VALUE")
    return key, value


def _taint(text: str) -> Taint:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    if not key or effect not in EFFECTS:
        raise CommandError(f"--taint is {text!r}: expected KEY=VALUE:EFFECT, with one of {', '.join(EFFECTS)}")
    return Taint(key=key, effect=effect, value=value)
