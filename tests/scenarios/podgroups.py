"""PodGroups as other projects define them: what of their definitions a client can notice.

Volcano and kube-batch have no status subresource: there the status is written with the object. scheduler-plugins has
one, and no conditions in its status.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from protos.contract import names
from tests.scenarios.world import Object

VOLCANO, SCHEDULER_PLUGINS, KUBE_BATCH = (
    "scheduling.volcano.sh/v1beta1",
    "scheduling.x-k8s.io/v1alpha1",
    "scheduling.incubator.k8s.io/v1alpha1",
)
OURS = f"{names.DOMAIN}/v1alpha1"
KINDS = (OURS, VOLCANO, SCHEDULER_PLUGINS, KUBE_BATCH)
_OUR_DEFINITION = Path(__file__).parents[2] / "manifests" / "base" / "extender" / "podgroup.yaml"
_Schema = dict[str, Any]
_INT, _STRING = {"type": "integer", "format": "int32"}, {"type": "string"}
_QUANTITIES = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}
_COUNTS = {"running": _INT, "succeeded": _INT, "failed": _INT}
_CONDITIONS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "type": _STRING,
            "status": _STRING,
            "reason": _STRING,
            "message": _STRING,
            "transitionID": _STRING,
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    },
}


def our_definition() -> Object:
    """The CustomResourceDefinition of our own PodGroup, from the manifests."""
    found: Object = yaml.safe_load(_OUR_DEFINITION.read_text())
    return found


def definitions() -> list[Object]:
    """The CustomResourceDefinitions of Volcano, scheduler-plugins and kube-batch."""
    volcano = {
        "minMember": _INT,
        "minTaskMember": {"type": "object", "additionalProperties": _INT},
        "minResources": _QUANTITIES,
        "queue": {"type": "string", "default": "default"},
        "priorityClassName": _STRING,
        "networkTopology": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    plugins = {"minMember": {**_INT, "minimum": 1}, "minResources": _QUANTITIES, "scheduleTimeoutSeconds": _INT}
    occupied = {"occupiedBy": _STRING, "scheduleStartTime": {"type": "string", "format": "date-time"}}
    kube_batch = {"minMember": _INT, "queue": _STRING, "priorityClassName": _STRING}
    told = {"phase": _STRING, **_COUNTS}
    return [
        _definition(VOLCANO, volcano, {**told, "conditions": _CONDITIONS}),
        _definition(SCHEDULER_PLUGINS, plugins, {**told, **occupied}, "status"),
        _definition(KUBE_BATCH, kube_batch, {**told, "conditions": _CONDITIONS}),
    ]


def a_pod_group(api_version: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> Object:
    """A PodGroup of one of these kinds."""
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": name, **metadata}, "spec": dict(spec)}


def _definition(api_version: str, spec: _Schema, status: _Schema, *subresources: str) -> Object:
    group, _, version = api_version.partition("/")
    fields = {name: {"type": "object", "properties": inner} for name, inner in (("spec", spec), ("status", status))}
    schema = {"openAPIV3Schema": {"type": "object", "properties": fields}}
    served = {"name": version, "served": True, "storage": True, "schema": schema}
    names = {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"podgroups.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [{**served, "subresources": {name: {} for name in subresources}}],
        },
    }
