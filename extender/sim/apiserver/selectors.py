"""Label and field selectors of requests, parsed into predicates."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import Object, Resource
from protos.contract.selector import Requirement

Predicate = Callable[[Object], bool]

_REQUIREMENT = re.compile(
    r"^\s*(?:(?P<absent>!)\s*(?P<key0>[\w./-]+)|(?P<key>[\w./-]+)\s*"
    r"(?:(?P<op>==|=|!=)\s*(?P<value>[\w.-]*)|(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?)\s*$"
)
_COMMA = re.compile(r",(?![^(]*\))")

_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "secrets": ("type",),
}


def _requirement(text: str) -> Requirement:
    parsed = _REQUIREMENT.match(text)
    if not parsed:
        raise errors.bad_request(f'unable to parse requirement: "{text}" in the label selector')
    part = parsed.groupdict()
    if part["absent"]:
        return Requirement(part["key0"], "DoesNotExist")
    if part["set"]:
        values = tuple(v.strip() for v in part["values"].split(","))
        return Requirement(part["key"], "In" if part["set"] == "in" else "NotIn", values)
    if part["op"]:
        return Requirement(part["key"], "NotIn" if part["op"] == "!=" else "In", (part["value"],))
    return Requirement(part["key"], "Exists")


def label_selector(text: str) -> Predicate:
    """The predicate of a ``labelSelector`` query; raises ApiError 400 if it cannot be parsed."""
    requirements = [_requirement(part) for part in _COMMA.split(text)]

    def holds(obj: Object) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(requirement.met(labels) for requirement in requirements)

    return holds


def _field(obj: Object, path: Sequence[str]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):  # field "source" of Events stands for source.component
        return str(value.get("component", ""))
    if value is None:
        return "false" if path[-1] == "unschedulable" else ""
    return str(value)


def field_selector(text: str, resource: Resource) -> Predicate:
    """The predicate of a ``fieldSelector`` query; raises ApiError 400 for a field that the resource does not index."""
    allowed = ("metadata.name", "metadata.namespace", *_FIELDS.get(resource.plural, ()))
    requirements = []
    for part in text.split(","):
        name, operator, value = part.partition("!=") if "!=" in part else part.partition("=")
        value = value.removeprefix("=")
        if not operator:
            raise errors.bad_request(f'invalid selector: "{part}"; can\'t understand "{part}"')
        if name not in allowed:
            raise errors.bad_request(
                f'Unable to find "{resource.api_version}, Resource={resource.plural}" that match '
                f'field selector "{text}": field label not supported: {name}'
            )
        requirements.append((name.split("."), operator == "!=", value))

    def holds(obj: Object) -> bool:
        return all((_field(obj, path) == value) != negated for path, negated, value in requirements)

    return holds


def selector(label: str, field: str, resource: Resource) -> Predicate:
    """Both selectors of a request as one predicate; without any, it selects everything."""
    parts = ([label_selector(label)] if label else []) + ([field_selector(field, resource)] if field else [])
    return lambda obj: all(part(obj) for part in parts)
