"""Label and field selectors, parsed into predicates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import Object, Resource

Predicate = Callable[[Object], bool]
Labels = Mapping[str, str]

_REQUIREMENT = re.compile(
    r"^\s*(?:(?P<absent>!)\s*(?P<key0>[\w./-]+)|(?P<key>[\w./-]+)\s*"
    r"(?:(?P<op>==|=|!=)\s*(?P<value>[\w.-]*)|(?P<set>in|notin)\s*\((?P<values>[^)]*)\)|(?P<cmp>[<>])\s*(?P<num>-?\d+))?)\s*$"
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


def matches_expression(labels: Labels, key: str, operator: str, values: Sequence[str]) -> bool:
    """One requirement of a label selector or of a node selector term, with its operator named as in the API."""
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt" | "Lt":
            try:
                left, right = int(labels[key]), int(values[0])
            except (KeyError, ValueError, IndexError):
                return False
            return left > right if operator == "Gt" else left < right
    raise errors.bad_request(f'"{operator}" is not a valid label selector operator')


def matches_selector(labels: Labels, selector: Mapping[str, Any]) -> bool:
    """A LabelSelector object (matchLabels, matchExpressions); an empty one matches everything."""
    return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items()) and all(
        matches_expression(labels, e["key"], e["operator"], e.get("values", ()))
        for e in selector.get("matchExpressions", ())
    )


def _requirement(text: str) -> tuple[str, str, list[str]]:
    found = _REQUIREMENT.match(text)
    if not found:
        raise errors.bad_request(f'unable to parse requirement: "{text}" in the label selector')
    part = found.groupdict()
    if part["absent"]:
        return part["key0"], "DoesNotExist", []
    if part["set"]:
        values = [v.strip() for v in part["values"].split(",")]
        return part["key"], "In" if part["set"] == "in" else "NotIn", values
    if part["cmp"]:
        return part["key"], "Gt" if part["cmp"] == ">" else "Lt", [part["num"]]
    if part["op"]:
        return part["key"], "NotIn" if part["op"] == "!=" else "In", [part["value"]]
    return part["key"], "Exists", []


def label_selector(text: str) -> Predicate:
    """The predicate of a ``labelSelector`` query; ApiError 400 when it cannot be parsed."""
    requirements = [_requirement(part) for part in _COMMA.split(text)]

    def holds(obj: Object) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(matches_expression(labels, *requirement) for requirement in requirements)

    return holds


def _field(obj: Object, path: Sequence[str]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):  # events: "source" means source.component
        return str(value.get("component", ""))
    if value is None:
        return "false" if path[-1] == "unschedulable" else ""
    return str(value)


def field_selector(text: str, resource: Resource) -> Predicate:
    """The predicate of a ``fieldSelector`` query; ApiError 400 for a field the resource cannot be selected by."""
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


def selector(label: str, field: str, resource: Resource) -> Predicate | None:
    """Both selectors of a request as one predicate; None when neither is given."""
    parts = ([label_selector(label)] if label else []) + ([field_selector(field, resource)] if field else [])
    if len(parts) == 2:
        return lambda obj: parts[0](obj) and parts[1](obj)
    return parts[0] if parts else None
