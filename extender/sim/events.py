"""Recording Events as the components of a cluster do: repeats raise a count instead of making new objects."""

from __future__ import annotations

import uuid

from extender.sim import podspec
from extender.sim.apiserver import errors, patch
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import EVENTS, Object, Resource

_LONGEST = 1024


class Recorder:
    """Writes Events in the name of ``component``."""

    def __init__(self, api: Api, component: str, instance: str) -> None:
        self._api, self._component, self._instance = api, component, instance
        self._writer = Writer(component)
        self._known: dict[tuple[str, str, str], tuple[str, str]] = {}

    def record(
        self, resource: Resource, about: Object, kind: str, reason: str, message: str, action: str, component: str = ""
    ) -> None:
        """``kind`` is Normal or Warning. A namespace that is gone is no error: nobody is left to read it."""
        message = message[:_LONGEST]
        known = self._known.get((about["metadata"]["uid"], reason, message))
        with errors.tolerated(404):
            if known and self._api.store.get(EVENTS, known):
                self._repeat(known)
            else:
                self._create(resource, about, kind, reason, message, action, component)

    def _repeat(self, key: tuple[str, str]) -> None:
        present = self._api.get(EVENTS, key).obj
        count, now = present["count"] + 1, podspec.timestamp()
        series = {"count": count, "lastObservedTime": podspec.micro_timestamp()}
        body = {"count": count, "lastTimestamp": now, "series": series}
        self._api.patch(EVENTS, key, body, patch.MERGE, self._writer)

    def _create(
        self, resource: Resource, about: Object, kind: str, reason: str, message: str, action: str, component: str
    ) -> None:
        metadata, now = about["metadata"], podspec.timestamp()
        namespace = metadata.get("namespace", "default")
        reporter = component or self._component
        place = {"namespace": metadata["namespace"]} if "namespace" in metadata else {}
        event = {
            "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
            "involvedObject": {
                **resource.type_meta,
                "name": metadata["name"],
                **place,
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "type": kind,
            "action": action,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "eventTime": podspec.micro_timestamp(),
            "source": {"component": reporter},
            "reportingComponent": reporter,
            "reportingInstance": self._instance,
        }
        item = self._api.create(EVENTS, namespace, event, self._writer)
        self._known[(metadata["uid"], reason, message)] = item.key
