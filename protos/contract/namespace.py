"""Namespaces and their labels, which queues select. Source: core/v1 Namespace."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from protos.contract import bounds
from protos.contract.objects import decode_raw

API_VERSION, KIND, PLURAL = "v1", "Namespace", "namespaces"


class Namespace(msgspec.Struct, frozen=True):
    """A core/v1 Namespace."""

    name: str
    labels: Mapping[str, str] | None
    """None: more than NAMESPACE_LABELS. Then only empty selectors select it."""


def decode(raw: bytes) -> Namespace:
    """A namespace from its JSON; raises msgspec.DecodeError."""
    meta = decode_raw(raw).metadata
    return Namespace(meta.name, meta.labels if len(meta.labels) <= bounds.NAMESPACE_LABELS.most else None)
