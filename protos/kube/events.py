"""Kubernetes Events (core/v1) about objects: at most one write per object and reason in 30 seconds."""

import contextlib
import datetime as dt
import itertools
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from protos.contract.printable import printable
from protos.kube import errors
from protos.kube.client import MERGE_PATCH, ApiClient
from protos.kube.paths import path

PAUSE_S = 30.0
LONGEST_MESSAGE = 1024
"""Characters that the API allows."""
LONGEST_STEM = 230
"""Characters of the object's name in that of its Event, which may have 253."""
PASSING = (errors.TooMany, errors.Unavailable)
"""Errors after which the same Event may be posted again."""
REMEMBERED = 4096
"""Pairs of object and reason of which the last Event is remembered."""


class Reference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    """Empty for cluster-scoped objects, whose Events are put into `default`."""
    uid: str = ""
    resource_version: str = ""


@dataclass(slots=True)
class _Told:
    """The last Event about an object for a reason."""

    at: float
    name: str
    count: int


class Recorder:
    """Posts the Events of one component."""

    def __init__(self, client: ApiClient, *, component: str, instance: str, clock: Callable[[], float]) -> None:
        """`component` is the program's name, `instance` this process (its pod's name); `clock` is monotonic, in s."""
        self.client, self.component, self.instance, self.clock = client, component, instance, clock
        self._told: OrderedDict[tuple[str, ...], _Told] = OrderedDict()
        self._numbers = itertools.count(int(dt.datetime.now(dt.UTC).timestamp() * 1e6))

    async def post(
        self, about: Reference, reason: str, message: str, *, kind: Literal["Normal", "Warning"] = "Normal"
    ) -> bool:
        """Tell something about an object; whether it was written.

        Within the pause after a write only the count goes up, which the next write carries: that one changes the same
        Event. Messages are made printable, and cut to what the API allows. Raises the errors of a request; after one
        that may pass the same can be posted again at once.
        """
        now, key = self.clock(), (about.uid or f"{about.kind}/{about.namespace}/{about.name}", reason)
        told = self._told.get(key)
        if told is not None and now - told.at < PAUSE_S:
            told.count += 1
            return False
        if told is None:
            told = self._told[key] = _Told(-math.inf, self._name(about), 0)
            if len(self._told) > REMEMBERED:
                self._told.popitem(last=False)
        self._told.move_to_end(key)
        before = told.at
        told.at, told.count = now, told.count + 1
        try:
            await self._write(told, about, reason, message, kind)
        except PASSING:
            told.at, told.count = before, told.count - 1
            raise
        return True

    async def _write(self, told: _Told, about: Reference, reason: str, message: str, kind: str) -> None:
        wall = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
        news = {"message": _cut(message), "count": told.count, "lastTimestamp": wall, "type": kind}
        collection = {"group_version": "v1", "plural": "events", "namespace": about.namespace or "default"}
        if told.count > 1:
            try:
                await self.client.patch(path(**collection, name=told.name), news, content_type=MERGE_PATCH)
                return
            except errors.NotFound:  # Events live for an hour
                told.name = self._name(about)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": told.name, "namespace": collection["namespace"]},
            "involvedObject": about,
            "reason": reason,
            "firstTimestamp": wall,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": self.instance,
            **news,
        }
        with contextlib.suppress(errors.AlreadyExists):  # an earlier try whose answer was lost
            await self.client.post(path(**collection), event)

    def _name(self, about: Reference) -> str:
        return f"{about.name[:LONGEST_STEM].rstrip('.-')}.{next(self._numbers):x}"


def _cut(message: str) -> str:
    message = printable(message)
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"
