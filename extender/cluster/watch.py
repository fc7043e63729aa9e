"""Watches every kind of `extender.cluster.kinds`, in the order that the engine needs.

The definitions of most kinds are optional, and may be installed or removed at any time. So the API groups are read from
the API server's discovery every few seconds. That needs no permission, and costs the API server one answer from memory.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import msgspec
import structlog

from extender.cluster import kinds
from extender.cluster.feed import Feed
from extender.cluster.kinds import Complain, WatchedKind
from extender.engine.types.events import Event
from extender.metrics import Metrics
from protos.contract import names
from protos.kube import errors
from protos.kube.client import ApiClient
from protos.kube.reflect import ABSENT

DISCOVER_S, DISCOVER_AGAIN_S = 10.0, 1.0
"""Seconds between two discoveries, and after one that failed or lacked a kind."""
MISSING_S = 30.0
"""Seconds for which a kind must be missing until its objects count as gone. An API server that starts, or that lags
behind others, lacks kinds for some seconds."""
PATIENCE_S = 10.0
"""Timeout of the list of a kind that the API server announces."""

CORE = "v1"
"""The API version that every API server serves; `/apis` does not list it."""

log = structlog.get_logger(__name__)


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str


class _ApiGroup(msgspec.Struct, frozen=True):
    versions: tuple[_Version, ...] = ()


class _ApiGroups(msgspec.Struct, frozen=True):
    """meta/v1 APIGroupList."""

    groups: tuple[_ApiGroup, ...] = ()


_api_groups = msgspec.json.Decoder(_ApiGroups)


def served(known: Iterable[WatchedKind], versions: frozenset[str]) -> list[WatchedKind]:
    """The kinds with one of these API versions; of several versions of one kind the first."""
    found: dict[tuple[str, str], WatchedKind] = {}
    for kind in known:
        if kind.api_version in versions:
            found.setdefault((kind.api_version.partition("/")[0], kind.plural), kind)
    return list(found.values())


class _Follower:
    """Watches one kind while it is served and we may read it. After its end it can be started again."""

    def __init__(self, client: ApiClient, kind: WatchedKind, tell: Callable[[Event], None], metrics: Metrics) -> None:
        self.kind = kind
        self.feed = Feed(client, kind, tell, metrics, optional=True)
        self._task: asyncio.Task[None] | None = None
        self._refused = False
        self.missing_since: float | None = None
        """When the API server was first seen to lack the kind; None if it has it."""

    def missing_s(self) -> float:
        """Note that the API server lacks the kind; returns for how many seconds it has."""
        now = asyncio.get_running_loop().time()
        if self.missing_since is None:
            self.missing_since = now
        return now - self.missing_since

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start watching; a watch that still runs shows that the kind is served."""
        if self._task is None or self._task.done():
            self._task = tasks.create_task(self._run())
        else:
            self.missing_since = None

    async def _run(self) -> None:
        lists = self.feed.lists
        try:
            await self.feed.run()
        except errors.NotFound:
            if self.feed.lists != lists:
                self.missing_since = None  # it was served meanwhile
            if self.missing_s() >= MISSING_S:
                self.feed.forget()
        except errors.Forbidden as error:
            if not self._refused:
                log.warning("kind_not_read", kind=self.kind.title, error=str(error), expected="get, list and watch")
            self._refused = True

    async def unless_ended(self, wait: Coroutine[Any, Any, None]) -> None:
        """Wait for this, at most until the watch ends or PATIENCE_S has passed."""
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
        """Stop watching a kind that is not served any more."""
        if self._task is not None:
            self._task.cancel()
        self.feed.close()
        self.feed.forget()


class OptionalKinds:
    """Watches all optional kinds that the API server serves."""

    def __init__(
        self, client: ApiClient, known: Sequence[WatchedKind], tell: Callable[[Event], None], metrics: Metrics
    ) -> None:
        self._client, self._kinds, self._tell, self._metrics = client, known, tell, metrics
        self._followers: dict[str, _Follower] = {}
        self._tasks: asyncio.TaskGroup
        self._looked = asyncio.Event()

    async def run(self) -> None:
        """Watch for ever."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                await self._look()
                self._looked.set()
                missing = any(follower.missing_since is not None for follower in self._followers.values())
                await asyncio.sleep(DISCOVER_AGAIN_S if missing else DISCOVER_S)

    async def listed(self) -> None:
        """Wait for the first complete list of each kind."""
        await self._looked.wait()
        await asyncio.gather(*(each.unless_ended(each.feed.listed()) for each in self._followers.values()))

    async def relisted(self) -> None:
        """Wait for consistent lists that are no older than this call."""
        await self._look()
        await asyncio.gather(*(each.unless_ended(each.feed.relisted()) for each in self._followers.values()))

    async def _look(self) -> None:
        """Start and end watches by what the API server serves."""
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
        """The kinds that the API server serves."""
        while True:
            try:
                listed = await self._client.fetch("/apis", _api_groups)
            except ABSENT:
                return self._kinds  # discovery is forbidden, but their lists will show
            except errors.ApiError as error:
                log.warning("discovery_failed", error=str(error))
                await asyncio.sleep(DISCOVER_AGAIN_S)
                continue
            versions = frozenset((CORE, *(v.group_version for group in listed.groups for v in group.versions)))
            return served(self._kinds, versions)


class Watches:
    """All collections that the engine needs."""

    def __init__(
        self,
        client: ApiClient,
        tell: Callable[[Event], None],
        metrics: Metrics,
        complain: Complain,
        *,
        gpushare: bool,
        resources: names.Resources = names.DEFAULT_RESOURCES,
        calm: asyncio.Event | None = None,
    ) -> None:
        """`complain` reports a PodGroup, GpuClass or queue that cannot be read to its owner.

        While `calm` is not set, the feed of pods pauses.
        """
        self._nodes = Feed(client, kinds.NODES, tell, metrics)
        self._optional = OptionalKinds(client, kinds.optional(complain, resources), tell, metrics)
        self._others = [Feed(client, kinds.PODS, tell, metrics, calm=calm)]
        if gpushare:
            self._others.append(Feed(client, kinds.unhealthy_gpus(complain), tell, metrics))
        self.replayed = asyncio.Event()
        """Set once the engine knows every object."""

    async def run(self) -> None:
        """Watch for ever.

        Nodes are listed before pods, so that each pod is booked once, onto known GPUs. So are PodGroups, GpuClasses and
        queues, so that no gang lacks its minimum, and no pod waits for an object that exists.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._optional.run())
            await self._nodes.listed()
            await self._optional.listed()
            for feed in self._others:
                tasks.create_task(feed.run())
            for feed in self._others:
                await feed.listed()
            self.replayed.set()

    async def catch_up(self) -> None:
        """List everything once more, consistently: for a replica that takes over from another."""
        feeds = (self._nodes, *self._others)
        await asyncio.gather(self._optional.relisted(), *(feed.relisted() for feed in feeds))
