"""Kubernetes Events (core/v1): at most one write per object and reason in 30 seconds."""

import contextlib
import datetime as dt
import itertools
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from protos.contract.printable import brief, printable
from protos.kube import errors
from protos.kube.client import MERGE_PATCH, ApiClient
from protos.kube.paths import path

PAUSE_S = 30.0
LONGEST_MESSAGE = 1024
"""The API's limit of characters."""
LONGEST_STEM = 230
"""Characters of the object's name in the name of its Event, whose limit is 253."""
PASSING = (errors.TooMany, errors.Unavailable)
"""Temporary errors; the same Event may be posted again."""
REMEMBERED = 4096
"""Maximal number of pairs of object and reason with a remembered last Event."""


class Reference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object of an Event."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    """Empty for cluster-scoped objects; their Events are in `default`."""
    uid: str = ""


@dataclass(slots=True)
class _Last:
    """The last Event of an object with a reason."""

    at: float
    name: str
    count: int


class Recorder:
    """Posts the Events of one component."""

    def __init__(self, client: ApiClient, *, component: str, instance: str, clock: Callable[[], float]) -> None:
        """`component`: the name of the program; `instance`: the name of its pod; `clock`: monotonic seconds."""
        self.client, self.component, self.instance, self.clock = client, component, instance, clock
        self._last: OrderedDict[tuple[str, ...], _Last] = OrderedDict()
        self._numbers = itertools.count(int(dt.datetime.now(dt.UTC).timestamp() * 1e6))

    async def post(
        self, about: Reference, reason: str, message: str, *, kind: Literal["Normal", "Warning"] = "Normal"
    ) -> bool:
        """Post an Event about an object; return whether it was written.

        During the pause after a write only the count increases; the next write updates the same Event. Messages are
        made printable and cut to the API's limit. Raises the errors of a request; after a PASSING one the same Event
        can be posted again at once.
        """
        now, key = self.clock(), (about.uid or f"{about.kind}/{about.namespace}/{about.name}", reason)
        last = self._last.get(key)
        if last is not None and now - last.at < PAUSE_S:
            last.count += 1
            return False
        if last is None:
            last = self._last[key] = _Last(-math.inf, self._name(about), 0)
            if len(self._last) > REMEMBERED:
                self._last.popitem(last=False)
        self._last.move_to_end(key)
        before = last.at
        last.at, last.count = now, last.count + 1
        try:
            await self._write(last, about, reason, message, kind)
        except PASSING:
            last.at, last.count = before, last.count - 1
            raise
        return True

    async def _write(self, last: _Last, about: Reference, reason: str, message: str, kind: str) -> None:
        wall = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
        shown = brief(printable(message), LONGEST_MESSAGE - 1)
        news = {"message": shown, "count": last.count, "lastTimestamp": wall, "type": kind}
        collection = {"group_version": "v1", "plural": "events", "namespace": about.namespace or "default"}
        if last.count > 1:
            try:
                await self.client.patch(path(**collection, name=last.name), news, content_type=MERGE_PATCH)
                return
            except errors.NotFound:  # Events live for an hour
                last.name = self._name(about)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": last.name, "namespace": collection["namespace"]},
            "involvedObject": about,
            "reason": reason,
            "firstTimestamp": wall,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": self.instance,
            **news,
        }
        with contextlib.suppress(errors.AlreadyExists):  # the answer of an earlier attempt was lost
            await self.client.post(path(**collection), event)

    def _name(self, about: Reference) -> str:
        return f"{about.name[:LONGEST_STEM].rstrip('.-')}.{next(self._numbers):x}"
