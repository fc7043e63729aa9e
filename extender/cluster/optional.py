"""Kinds of objects whose definitions are optional, and may be installed or removed at any time.

Which API groups there are is read from the API server's discovery every few seconds: that needs no right, costs it one
answer from memory, and asks nothing of a cluster that has none of them.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import msgspec
import structlog

from extender.cluster.feed import Feed, together
from extender.cluster.watched import WatchedKind
from extender.engine.types.events import Event
from extender.metrics import Metrics
from protos.kube import errors
from protos.kube.changes import Ref
from protos.kube.client import ApiClient
from protos.kube.reflect import ABSENT

DISCOVER_S, DISCOVER_AGAIN_S = 10.0, 1.0
"""Seconds between looks at what the API server serves, and after one that failed or lacked a kind."""
MISSING_S = 30.0
"""Seconds for which a kind must be missing until its objects count as gone. An API server that starts, or one of
several that lags behind, lacks kinds for some seconds."""
PATIENCE_S = 10.0
"""Seconds that others wait for the list of a kind that the API server announces and does not deliver."""

CORE = "v1"
"""The API version that every API server serves, and of which `/apis` does not tell."""

log = structlog.get_logger(__name__)


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str


class _ApiGroup(msgspec.Struct, frozen=True):
    versions: tuple[_Version, ...] = ()


class _ApiGroups(msgspec.Struct, frozen=True):
    """meta/v1 APIGroupList."""

    groups: tuple[_ApiGroup, ...] = ()


_api_groups = msgspec.json.Decoder(_ApiGroups)


def served(kinds: Iterable[WatchedKind], versions: frozenset[str]) -> list[WatchedKind]:
    """Of these those whose API version is among these; of several versions of one kind the first."""
    found: dict[tuple[str, str], WatchedKind] = {}
    for kind in kinds:
        if kind.api_version in versions:
            found.setdefault((kind.api_version.partition("/")[0], kind.plural), kind)
    return list(found.values())


class _Follower:
    """Follows one kind for as long as it is served and shown to us; then it can be started once more."""

    def __init__(self, client: ApiClient, kind: WatchedKind, tell: Callable[[Event], None], metrics: Metrics) -> None:
        self.kind, self._tell = kind, tell
        self._told: dict[tuple[str, str], Ref] = {}
        """The objects that the engine was told of."""
        remembering = msgspec.structs.replace(kind, seen=self._seen, gone=self._gone)
        self.feed = Feed(client, remembering, tell, metrics, optional=True)
        self._task: asyncio.Task[None] | None = None
        self._refused = False
        self._missing_since: float | None = None

    def _seen(self, ref: Ref, found: Any) -> Event | None:
        self._told[ref.namespace, ref.name] = ref
        return self.kind.seen(ref, found)

    def _gone(self, ref: Ref) -> Event | None:
        self._told.pop((ref.namespace, ref.name), None)
        return self.kind.gone(ref)

    def missing_s(self) -> float:
        """The API server says that there is no such kind; for how many seconds it has said so."""
        now = asyncio.get_running_loop().time()
        if self._missing_since is None:
            self._missing_since = now
        return now - self._missing_since

    @property
    def missing(self) -> bool:
        """Whether the API server said so last."""
        return self._missing_since is not None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Follow it, unless that is being done: then it is there."""
        if self._task is None or self._task.done():
            self._task = tasks.create_task(self._run())
        else:
            self._missing_since = None

    async def _run(self) -> None:
        lists = self.feed.lists
        try:
            await self.feed.run()
        except errors.NotFound:
            if self.feed.lists != lists:
                self._missing_since = None  # it was there in between
            if self.missing_s() >= MISSING_S:
                self._forget()
        except errors.Forbidden as error:
            if not self._refused:
                log.warning("kind_not_read", kind=self.kind.title, error=str(error), expected="get, list and watch")
            self._refused = True

    async def unless_ended(self, wait: Coroutine[Any, Any, None]) -> None:
        """Wait for this, but not past the end of following, and not without end."""
        waiting = asyncio.create_task(wait)
        ends = {waiting} if self._task is None else {waiting, self._task}
        try:
            done, _ = await asyncio.wait(ends, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                log.warning("kind_not_listed", kind=self.kind.title, waited_s=PATIENCE_S)
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
        """All of its objects are gone."""
        for _, ref in sorted(self._told.items()):
            self._say(self.kind.gone(ref))
        self._told.clear()
        self._say(self.kind.left())

    def _say(self, event: Event | None) -> None:
        if event is not None:
            self._tell(event)


class OptionalKinds:
    """All optional kinds."""

    def __init__(
        self, client: ApiClient, kinds: Sequence[WatchedKind], tell: Callable[[Event], None], metrics: Metrics
    ) -> None:
        self._client, self._kinds, self._tell, self._metrics = client, kinds, tell, metrics
        self._followers: dict[str, _Follower] = {}
        self._tasks: asyncio.TaskGroup
        self._looked = asyncio.Event()

    async def run(self) -> None:
        """Follow for ever what there is."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                await self._look()
                self._looked.set()
                missing = any(follower.missing for follower in self._followers.values())
                await asyncio.sleep(DISCOVER_AGAIN_S if missing else DISCOVER_S)

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
        wanted = {kind.path: kind for kind in await self._served()}
        for path in self._followers.keys() - wanted.keys():
            if self._followers[path].missing_s() >= MISSING_S:
                log.info("kind_left", kind=self._followers[path].kind.title)
                self._followers.pop(path).end()
        for path, kind in wanted.items():
            if path not in self._followers:
                log.info("kind_followed", kind=kind.title)
                self._followers[path] = _Follower(self._client, kind, self._tell, self._metrics)
            self._followers[path].start(self._tasks)

    async def _served(self) -> Sequence[WatchedKind]:
        """The kinds that the API server says it serves."""
        while True:
            try:
                listed = await self._client.fetch("/apis", _api_groups)
            except ABSENT:
                return self._kinds  # it keeps that to itself, but their lists will tell
            except errors.ApiError as error:
                log.warning("discovery_failed", error=str(error))
                await asyncio.sleep(DISCOVER_AGAIN_S)
                continue
            versions = frozenset((CORE, *(v.group_version for group in listed.groups for v in group.versions)))
            return served(self._kinds, versions)
