"""events.k8s.io/v1 as a view of core/v1 Events: one object, two spellings of its fields."""

from __future__ import annotations

from extender.sim.apiserver.resources import Object

_NEW_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
}
_CORE_TO_NEW = {core: new for new, core in _NEW_TO_CORE.items()}


def to_core(event: Object) -> Object:
    """A body in the events.k8s.io form in the form stored."""
    return {_NEW_TO_CORE.get(field, field): value for field, value in event.items() if field != "apiVersion"}


def from_core(event: Object) -> Object:
    """A stored event in the events.k8s.io form."""
    return {_CORE_TO_NEW.get(field, field): value for field, value in event.items()}
