"""The objects that declare groups, of every kind that the cluster serves.

Their definitions are optional, and may be installed or removed at any time. Which API groups there are is read from the
API server's discovery every few seconds: that needs no right, costs it one answer from memory, and asks nothing of a
cluster that has none of them.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec
import structlog

from extender.cluster.feed import Feed, Kind, together
from extender.engine.effects import Event, GroupGone, GroupSeen
from extender.metrics import Metrics
from gangfilter import podgroups
from gangfilter.group import Declaration, GroupKey
from protos.contract.reason import Reason
from protos.kube import errors, paths
from protos.kube.changes import Ref
from protos.kube.client import ApiClient
from protos.kube.events import Reference
from protos.kube.reflect import ABSENT

DISCOVER_S, DISCOVER_AGAIN_S = 10.0, 1.0
"""Seconds between looks at what the API server serves, and after one that failed."""
PATIENCE_S = 10.0
"""Seconds that others wait for the list of a kind that the API server announces and does not deliver."""
UNREADABLE = "GroupUnreadable"

log = structlog.get_logger(__name__)
Complain = Callable[[Reference, Reason], None]


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str


class _ApiGroup(msgspec.Struct, frozen=True):
    versions: tuple[_Version, ...] = ()


class _ApiGroups(msgspec.Struct, frozen=True):
    """meta/v1 APIGroupList."""

    groups: tuple[_ApiGroup, ...] = ()


_api_groups = msgspec.json.Decoder(_ApiGroups)


def api_version(kind: podgroups.Kind) -> str:
    """Group and version, as in an object's apiVersion: how the engine knows a kind."""
    return f"{kind.api_group}/{kind.version}"


def served(kinds: Iterable[podgroups.Kind], versions: frozenset[str]) -> list[podgroups.Kind]:
    """Of these kinds those whose API version is among these; of each API group the first."""
    found: dict[str, podgroups.Kind] = {}
    for kind in kinds:
        if api_version(kind) in versions:
            found.setdefault(kind.api_group, kind)
    return list(found.values())


class _Declared(Kind):
    """What the objects of one kind declare."""

    def __init__(self, kind: podgroups.Kind, complain: Complain) -> None:
        self._kind, self._name, self._complain = kind, api_version(kind), complain
        self.known: set[GroupKey] = set()

    def seen(self, _: Ref, found: tuple[GroupKey, Declaration]) -> Event:
        key, declaration = found
        self.known.add(key)
        return GroupSeen(self._name, key, declaration)

    def gone(self, ref: Ref) -> Event:
        key = GroupKey(ref.namespace, ref.name)
        self.known.discard(key)
        return GroupGone(self._name, key)

    def unreadable(self, ref: Ref, error: Exception) -> None:
        about = Reference(self._name, self._kind.kind, ref.name, ref.namespace, ref.uid)
        self._complain(about, Reason(UNREADABLE, str(error)))


class _Follower:
    """Follows one kind for as long as it is served and shown to us; then it can be started once more."""

    def __init__(
        self,
        client: ApiClient,
        kind: podgroups.Kind,
        tell: Callable[[Event], None],
        metrics: Metrics,
        complain: Complain,
    ) -> None:
        def decode(raw: bytes) -> tuple[GroupKey, Declaration]:
            return podgroups.declaration(kind, raw)

        self.kind, self._tell = kind, tell
        self._declared = _Declared(kind, complain)
        path = paths.path(api_version(kind), kind.plural)
        self.feed = Feed(
            client, path, decode, self._declared, tell, metrics, optional=True, unreadable=self._declared.unreadable
        )
        self._task: asyncio.Task[None] | None = None
        self._refused = False

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Follow it, unless that is being done."""
        if self._task is None or self._task.done():
            self._task = tasks.create_task(self._run())

    async def _run(self) -> None:
        lists = self.feed.lists
        try:
            await self.feed.run()
        except errors.NotFound:
            if self.feed.lists == lists:  # not for the first time: one of several API servers may lag behind
                self._forget()
        except errors.Forbidden as error:
            if not self._refused:
                log.warning("groups_not_read", kind=self.kind.source, error=str(error), expected="get, list and watch")
            self._refused = True

    async def unless_ended(self, wait: Coroutine[Any, Any, None]) -> None:
        """Wait for this, but not past the end of following, and not without end."""
        waiting = asyncio.create_task(wait)
        ends = {waiting} if self._task is None else {waiting, self._task}
        try:
            done, _ = await asyncio.wait(ends, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                log.warning("groups_not_listed", kind=self.kind.source, waited_s=PATIENCE_S)
            if waiting in done:
                with contextlib.suppress(*ABSENT):
                    waiting.result()
        finally:
            waiting.cancel()

    def end(self) -> None:
        """The API server does not serve it any more."""
        if self._task is not None:
            self._task.cancel()
        self.feed.close()
        self._forget()

    def _forget(self) -> None:
        for key in sorted(self._declared.known):
            self._tell(GroupGone(api_version(self.kind), key))
        self._declared.known.clear()


class Groups:
    """All kinds."""

    def __init__(self, client: ApiClient, tell: Callable[[Event], None], metrics: Metrics, complain: Complain) -> None:
        """`complain` tells the owner of an object that it cannot be read."""
        self._client, self._tell, self._metrics, self._complain = client, tell, metrics, complain
        self._followers: dict[str, _Follower] = {}
        self._tasks: asyncio.TaskGroup
        self._looked = asyncio.Event()

    async def run(self) -> None:
        """Follow for ever what there is."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                await self._look()
                self._looked.set()
                await asyncio.sleep(DISCOVER_S)

    async def listed(self) -> None:
        """Wait until all that is there was told once."""
        await self._looked.wait()
        await together(each.unless_ended(each.feed.listed()) for each in self._followers.values())

    async def relisted(self) -> None:
        """Wait until consistent lists, no older than this call, were told."""
        await self._look()
        await together(each.unless_ended(each.feed.relisted()) for each in self._followers.values())

    async def _look(self) -> None:
        """Follow what the API server serves, and nothing else."""
        wanted = {api_version(kind): kind for kind in await self._served()}
        for name in self._followers.keys() - wanted.keys():
            log.info("groups_left", kind=self._followers[name].kind.source)
            self._followers.pop(name).end()
        for name, kind in wanted.items():
            if name not in self._followers:
                log.info("groups_followed", kind=kind.source)
                self._followers[name] = _Follower(self._client, kind, self._tell, self._metrics, self._complain)
            self._followers[name].start(self._tasks)

    async def _served(self) -> list[podgroups.Kind]:
        """The kinds that the API server says it serves."""
        while True:
            try:
                listed = await self._client.fetch("/apis", _api_groups)
            except ABSENT:
                return list(podgroups.KINDS)  # it keeps that to itself, but their lists will tell
            except errors.ApiError as error:
                log.warning("discovery_failed", error=str(error))
                await asyncio.sleep(DISCOVER_AGAIN_S)
                continue
            return served(
                podgroups.KINDS, frozenset(v.group_version for group in listed.groups for v in group.versions)
            )
