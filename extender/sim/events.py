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
                return
            event = self._event(resource, about, component or self._component)
            event |= {"reason": reason, "message": message, "type": kind, "action": action}
            item = self._api.create(EVENTS, event["metadata"]["namespace"], event, self._writer)
            self._recorded[(about["metadata"]["uid"], reason, message)] = item.key

    def _repeat(self, key: tuple[str, str]) -> None:
        present = self._api.get(EVENTS, key).obj
        count, now = present["count"] + 1, podspec.timestamp()
        series = {"count": count, "lastObservedTime": podspec.micro_timestamp()}
        body = {"count": count, "lastTimestamp": now, "series": series}
        self._api.patch(EVENTS, key, body, patch.MERGE, self._writer)

    def _event(self, resource: Resource, about: Object, reporter: str) -> Object:
        metadata, now = about["metadata"], podspec.timestamp()
        identity = ("name", "namespace", "uid", "resourceVersion")
        name = f"{metadata['name']}.{uuid.uuid4().hex[:16]}"
        return {
            "metadata": {"name": name, "namespace": metadata.get("namespace", "default")},
            "involvedObject": {**resource.type_meta, **{key: metadata[key] for key in identity if key in metadata}},
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "eventTime": podspec.micro_timestamp(),
            "source": {"component": reporter},
            "reportingComponent": reporter,
            "reportingInstance": self._instance,
        }
