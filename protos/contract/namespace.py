"""Namespaces and their labels, which queues and our policies select. Source: core/v1 Namespace."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from protos.contract import bounds, names
from protos.contract.isolation import DEMANDED, Demanded
from protos.contract.objects import decode_raw
from protos.contract.printable import brief

API_VERSION, KIND, PLURAL = "v1", "Namespace", "namespaces"
VALUES: Mapping[str, tuple[str, ...]] = {
    names.GPU_VISIBILITY: ("all",),
    names.UNKNOWN_KEYS: ("deny", "warn", "ignore"),
    names.METRICS_LABEL: ("true",),
    names.ISOLATION: DEMANDED,
}
"""Our labels of namespaces, and their values."""
SHOWN = 63
"""Characters of a label that a sentence shows."""


class Namespace(msgspec.Struct, frozen=True):
    """A core/v1 Namespace."""

    name: str
    labels: Mapping[str, str] | None
    """None: more than NAMESPACE_LABELS. Then only empty selectors select it."""
    problem: str = ""
    """A label that cannot be read, "" if there is none."""
    isolation: Demanded | None = None
    """What its pods demand that say nothing of isolation: the strictest if the label cannot be read; None: no label."""


def decode(raw: bytes) -> Namespace:
    """A namespace from its JSON; raises msgspec.DecodeError."""
    meta = decode_raw(raw).metadata
    isolation = _isolation(meta.labels)
    if len(meta.labels) > bounds.NAMESPACE_LABELS.most:
        problem = f"{bounds.NAMESPACE_LABELS.exceeded(len(meta.labels))}: no queue that selects namespaces admits it"
        return Namespace(meta.name, None, problem, isolation)
    return Namespace(meta.name, meta.labels, _problem(meta.labels), isolation)


def _isolation(labels: Mapping[str, str]) -> Demanded | None:
    value = labels.get(names.ISOLATION)
    return next((each for each in DEMANDED if each == value), DEMANDED[-1]) if value is not None else None


def _problem(labels: Mapping[str, str]) -> str:
    for label in sorted(label for label in labels if label.startswith(f"{names.DOMAIN}/")):
        if label not in VALUES:
            return f"label {brief(label, SHOWN)} is not known to Gangshare: expected {', '.join(VALUES)}"
        if labels[label] not in VALUES[label]:
            return f"label {label} is {labels[label][:SHOWN]!r}: expected {', '.join(VALUES[label])}"
    return ""
