"""Records Events as Kubernetes components do: a repeated Event raises the count of the first."""

from __future__ import annotations

import uuid

from extender.sim import podspec
from extender.sim.apiserver import errors, patch
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import EVENTS, Object, Resource

_MAX_MESSAGE = 1024


class Recorder:
    """Writes the Events of one ``component``."""

    def __init__(self, api: Api, component: str, instance: str) -> None:
        self._api, self._component, self._instance = api, component, instance
        self._writer = Writer(component)
        self._recorded: dict[tuple[str, str, str], tuple[str, str]] = {}

    def record(
        self, resource: Resource, about: Object, kind: str, reason: str, message: str, action: str, component: str = ""
    ) -> None:
        """Record an Event of ``kind`` Normal or Warning. It is dropped if its namespace is gone."""
        message = message[:_MAX_MESSAGE]
        recorded = self._recorded.get((about["metadata"]["uid"], reason, message))
        with errors.tolerated(404):
            if recorded and self._api.store.get(EVENTS, recorded):
                self._repeat(recorded)
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
        self._recorded[(metadata["uid"], reason, message)] = item.key
