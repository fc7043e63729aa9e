"""What pods can request, for the aggregated API: classes by name, and models of GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, count

from extender.engine.cycle.engine import Engine
from extender.server import listings
from extender.server.visibility.items import Listing, View
from extender.wire.visibility import GpuOfferStatus, Item

UNKNOWN = "unknown"
"""The name of GPUs without a model."""


def offers(view: View, namespace: str) -> Listing:  # noqa: ARG001  # they are in none
    """All classes, then the missing ones that pods name, then all models."""
    taken = set[str]()
    for name, status in _offers(view.engine):
        unique = next(each for each in chain([name], (f"{name}-{more}" for more in count(2))) if each not in taken)
        taken.add(unique)
        yield Item("", unique, status)


def offer(view: View, namespace: str, name: str) -> Listing:
    """A class or model by name."""
    for item in offers(view, namespace):
        yield item if item is not None and item.name == name else None


def _offers(engine: Engine) -> Iterator[tuple[str, GpuOfferStatus]]:
    for gpu_class in listings.gpu_classes(engine):
        yield gpu_class.name, GpuOfferStatus(gpu_class=gpu_class)
    for missing in listings.missing_classes(engine):
        yield missing.name, GpuOfferStatus(missing=missing)
    for model in listings.models(engine):
        yield _as_name(f"{model.model} {model.profile}"), GpuOfferStatus(model=model)


def _as_name(model: str) -> str:
    """A model as the name of an object: `NVIDIA H200` is nvidia-h200."""
    return re.sub("[^a-z0-9]+", "-", model.lower()).strip("-") or UNKNOWN
