"""The kinds of objects that declare queues, and their decoders: ours, Volcano's and ElasticQuotas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from protos.contract import names
from protos.contract.bounds import (
    DESCRIPTION,
    HUGE,
    QUEUE_NAMESPACES,
    QUEUE_PRIORITY,
    RESOURCE_NAME,
    RESOURCES,
    SELECTOR_TERMS,
    SELECTOR_VALUES,
    WEIGHT,
)
from protos.contract.codec import BAD_JSON
from protos.contract.gpu_class import CLASS_NAME
from protos.contract.objects import ObjectMeta, Quantities, decode_raw
from protos.contract.quantity import QuantityError
from protos.contract.queue import API_VERSION, CLASS, GPUS, KIND, NOBODY, PLURAL, Amounts, Queue, amount
from protos.contract.selector import Requirement, Selector

_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")
_KOORDINATOR = "quota.scheduling.koordinator.sh/"
_ROOT = "root"
"""Volcano's queue without a parent."""


class QueueError(ValueError):
    """An invalid field; the message has its name, its value and what was expected."""


class SelectorError(QueueError):
    """An invalid namespaceSelector; such a queue admits no pods."""


class Source(msgspec.Struct, frozen=True, eq=False):
    """A kind of objects that declare queues."""

    api_version: str
    plural: str
    kind: str
    read: Callable[[ObjectMeta, msgspec.Raw, msgspec.Raw], dict[str, Any]]
    """Fields of a Queue, from metadata, spec and status; raises QueueError and msgspec's errors."""

    def name(self, namespace: str, name: str) -> str:
        """The name of the queue that this object declares."""
        return f"{namespace}/{name}" if namespace else name


class _Spec(msgspec.Struct, rename="camel"):
    parent: str | None = None
    weight: int | None = None
    priority: int | None = None
    guarantee: Quantities | None = None
    deserved: Quantities | None = None
    capability: Quantities | None = None
    reclaimable: bool | None = None
    closed: bool | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: msgspec.Raw = msgspec.Raw(b"null")
    description: str | None = None


class _Guarantee(msgspec.Struct):
    resource: Quantities | None = None


class _VolcanoSpec(msgspec.Struct):
    parent: str | None = None
    weight: int | None = None
    priority: int | None = None
    guarantee: _Guarantee | None = None
    deserved: Quantities | None = None
    capability: Quantities | None = None
    reclaimable: bool | None = None


class _VolcanoStatus(msgspec.Struct):
    state: str | None = None


class _Elastic(msgspec.Struct):
    min: Quantities | None = None
    max: Quantities | None = None


_SPEC = msgspec.json.Decoder(_Spec)
_SELECTOR = msgspec.json.Decoder(Selector | None)
_VOLCANO_SPEC = msgspec.json.Decoder(_VolcanoSpec)
_VOLCANO_STATUS = msgspec.json.Decoder(_VolcanoStatus | None)
_ELASTIC = msgspec.json.Decoder(_Elastic)


def decode(source: Source, data: bytes) -> Queue:
    """A queue from its JSON (bytes or msgspec.Raw); raises msgspec.DecodeError if its name cannot be read."""
    decoded = decode_raw(data)
    meta = decoded.metadata
    name = source.name(meta.namespace, meta.name)
    try:
        return Queue(name=name, source=source.api_version, **source.read(meta, decoded.spec, decoded.status))
    except SelectorError as error:
        problem = f"{error}; it admits no namespace"
        return Queue(name=name, source=source.api_version, problem=problem, namespace_selector=NOBODY)
    except BAD_JSON as error:
        return Queue(name=name, source=source.api_version, problem=f"spec cannot be read: {error}")


def _own(_: ObjectMeta, spec: msgspec.Raw, __: msgspec.Raw) -> dict[str, Any]:
    own = _SPEC.decode(spec)
    selector = _selector(own.namespace_selector)
    limits = {field: _amounts(field, getattr(own, field)) for field in ("guarantee", "deserved", "capability")}
    for less, more in (("guarantee", "deserved"), ("deserved", "capability"), ("guarantee", "capability")):
        _check_order(less, more, limits, own)
    return {
        **limits,
        "parent": own.parent or "",
        "weight": _within("weight", own.weight, 1, 1, WEIGHT.most),
        "priority": _within("priority", own.priority, 0, -QUEUE_PRIORITY.most, QUEUE_PRIORITY.most),
        "reclaimable": own.reclaimable is not False,
        "closed": bool(own.closed),
        "namespaces": _namespaces(own.namespaces or ()),
        "namespace_selector": selector,
        "description": (own.description or "")[: DESCRIPTION.most],
    }


def _namespaces(names: Sequence[str]) -> tuple[str, ...]:
    if len(names) > QUEUE_NAMESPACES.most:
        raise QueueError(QUEUE_NAMESPACES.exceeded(len(names)))
    return tuple(sorted(set(names)))


def _selector(raw: msgspec.Raw) -> Selector | None:
    """A namespaceSelector as Kubernetes reads it; raises SelectorError."""
    try:
        selector: Selector | None = _SELECTOR.decode(raw)
    except BAD_JSON as error:
        raise SelectorError(f"spec.namespaceSelector cannot be read: {error}") from error
    if selector is None:
        return None
    terms = len(selector.match_labels) + len(selector.match_expressions)
    if terms > SELECTOR_TERMS.most:
        raise SelectorError(SELECTOR_TERMS.exceeded(terms))
    for each in selector.match_expressions:
        _check(each)
    return selector


def _check(each: Requirement) -> None:
    """Raise SelectorError for an invalid entry of matchExpressions."""
    where = f"spec.namespaceSelector: {each.key[:60]!r} {each.operator}"
    if each.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
        raise SelectorError(f"{where}: expected In, NotIn, Exists or DoesNotExist")
    if (each.operator in ("In", "NotIn")) != bool(each.values):
        raise SelectorError(f"{where} has {len(each.values)} values: expected some for In and NotIn, and none else")
    if len(each.values) > SELECTOR_VALUES.most:
        raise SelectorError(f"{where}: {SELECTOR_VALUES.exceeded(len(each.values))}")


def _check_order(less: str, more: str, limits: Mapping[str, Amounts], spec: _Spec) -> None:
    """Raise QueueError for an amount above its bound in another field."""
    for resource, least in limits[less].items():
        bound = limits[more].get(resource)
        if bound is not None and least > bound:
            few, many = (str(getattr(spec, field)[resource]) for field in (less, more))
            raise QueueError(f"{less}.{resource} is {few!r}: expected no more than {more}, which is {many!r}")


def _within(field: str, value: int | None, default: int, least: int, most: int) -> int:
    if value is None:
        return default
    if not least <= value <= most:
        shown = value if abs(value) < HUGE else f"more than {HUGE}"
        raise QueueError(f"{field} is {shown}: expected a whole number from {least} to {most}")
    return value


def _amounts(field: str, quantities: Quantities | None, *, strict: bool = True) -> dict[str, int]:
    """Amounts by resource; `strict` refuses resources that pods cannot request."""
    amounts: dict[str, int] = {}
    if len(quantities or {}) > RESOURCES.most:
        raise QueueError(f"{field}: {RESOURCES.exceeded(len(quantities or {}))}")
    for resource, quantity in (quantities or {}).items():
        if len(resource) > RESOURCE_NAME.most:
            raise QueueError(f"{field}: {RESOURCE_NAME.exceeded(len(resource))}")
        if strict and not _counted(resource):
            expected = f"{GPUS}, {CLASS}NAME, cpu, memory, pods or a resource like {names.GPU_MEM}"
            raise QueueError(f"{field} names {resource[:60]!r}: expected {expected}")
        try:
            amounts[resource] = amount(resource, quantity)
        except QuantityError as error:
            raise QueueError(f"{field}.{resource}: {error}") from error
        if amounts[resource] < 0:
            raise QueueError(f"{field}.{resource} is {quantity!r}: expected zero or more")
    return amounts


def _counted(resource: str) -> bool:
    """Whether pods can request it. Names of a ResourceQuota (`requests.X`) and `DOMAIN/gpus` would limit nothing."""
    if resource.startswith(CLASS):
        return bool(CLASS_NAME.fullmatch(resource.removeprefix(CLASS)))
    domain, _, name = resource.partition("/")
    extended = "." in domain and name not in ("", GPUS) and not domain.startswith(("requests.", "limits."))
    return resource == GPUS or resource in _NATIVE or resource.startswith("hugepages-") or extended


def _volcano(_: ObjectMeta, spec: msgspec.Raw, status: msgspec.Raw) -> dict[str, Any]:
    """As in Volcano: weight 0 is 1, and the status closes a queue."""
    own = _VOLCANO_SPEC.decode(spec)
    state = _VOLCANO_STATUS.decode(status)
    guarantee = own.guarantee.resource if own.guarantee else None
    return {
        "parent": "" if own.parent == _ROOT else own.parent or "",
        "weight": max(1, WEIGHT.capped(own.weight or 1)),
        "priority": max(-QUEUE_PRIORITY.most, min(QUEUE_PRIORITY.most, own.priority or 0)),
        "guarantee": _amounts("guarantee.resource", guarantee, strict=False),
        "deserved": _amounts("deserved", own.deserved, strict=False),
        "capability": _amounts("capability", own.capability, strict=False),
        "reclaimable": own.reclaimable is not False,
        "closed": state is not None and state.state in ("Closed", "Closing"),
    }


def _elastic(meta: ObjectMeta, spec: msgspec.Raw, _: msgspec.Raw) -> dict[str, Any]:
    """Other queues may borrow the unused part of `min`, unless Koordinator's label forbids it."""
    own = _ELASTIC.decode(spec)
    least, most = _amounts("min", own.min, strict=False), _amounts("max", own.max, strict=False)
    lent = meta.labels.get(f"{_KOORDINATOR}allow-lent-resource") != "false"
    parent = meta.labels.get(f"{_KOORDINATOR}parent", "")
    return {
        "parent": "" if parent in (_ROOT, "koordinator-root-quota") else parent,
        "guarantee": {} if lent else least,
        "deserved": least,
        "capability": most,
        "namespaces": (meta.namespace,),
    }


OWN = Source(API_VERSION, PLURAL, KIND, _own)
SOURCES = (
    OWN,
    Source("scheduling.volcano.sh/v1beta1", "queues", "Queue", _volcano),
    Source("scheduling.x-k8s.io/v1alpha1", "elasticquotas", "ElasticQuota", _elastic),
    Source("scheduling.sigs.k8s.io/v1alpha1", "elasticquotas", "ElasticQuota", _elastic),
)
"""Of several queues with one name, that of the first source counts."""
