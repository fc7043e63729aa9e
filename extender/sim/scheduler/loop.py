"""The scheduler: watches, queue, one cycle at a time, concurrent binds."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import structlog

from extender.sim import podspec
from extender.sim.apiserver import patch
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.errors import ApiError
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import NODES, PODS
from extender.sim.apiserver.store import Change
from extender.sim.events import Recorder
from extender.sim.podspec import Object
from extender.sim.scheduler.cache import Cache
from extender.sim.scheduler.client import ExtenderClient, ExtenderError
from extender.sim.scheduler.config import Config, ConfigError, Profile
from extender.sim.scheduler.cycle import Cycle, FitError, NoNodes
from extender.sim.scheduler.election import Elector
from extender.sim.scheduler.nodes import node_events
from extender.sim.scheduler.queue import Event, QueuedPod, SchedulingQueue

_log = structlog.get_logger()
_NAME = "kube-scheduler"
_STATUS = Writer(_NAME, "status")


class _LeaseLost(Exception):
    """Another scheduler may have acquired the Lease."""


def _pending(pod: Object) -> bool:
    return not podspec.node_of(pod) and not podspec.finished(pod)


def _placed(pod: Object | None) -> bool:
    return pod is not None and bool(podspec.node_of(pod)) and not podspec.finished(pod)


class Scheduler:
    """One scheduler process, without in-tree preemption, which profiles of preempting extenders disable.

    It looks at every node, and asks no extender for scores. ``hostname`` is the first part of the Lease's holder
    identity.
    """

    def __init__(self, api: Api, config: Config, hostname: str) -> None:
        if any(e.prioritize_verb or not e.node_cache_capable for e in config.extenders):
            raise ConfigError("this scheduler supports only extenders with nodeCacheCapable and without prioritizeVerb")
        self._api, self._config = api, config
        self._profiles = {p.scheduler_name: p for p in config.profiles}
        self._elector = Elector(api, config.leader_election, hostname)
        self._recorder = Recorder(api, _NAME, f"{_NAME}-{hostname}")
        self._cache = Cache()
        self.queue = SchedulingQueue(config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds)
        self._changed = asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._clients: list[ExtenderClient] = []
        self.running = asyncio.Event()  # set while it leads and schedules
        self.releases = True  # releases its Lease when cancelled; a killed process does not

    async def run(self) -> None:
        """Lead and schedule until the Lease is lost or the task is cancelled, then release the Lease. Call it once."""
        electing = self._config.leader_election.leader_elect
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            self._clients = [ExtenderClient(e, session) for e in self._config.extenders]
            if electing:
                await self._elector.acquire()
            try:
                await self._lead(electing)
            except* _LeaseLost:
                pass
            finally:
                self.running.clear()
                if electing and self.releases:
                    self._elector.release()

    async def _lead(self, electing: bool) -> None:
        async with self._group as group:
            for work in (self._follow_nodes(), self._follow_pods(), self._schedule()):
                group.create_task(work)
            if electing:
                group.create_task(self._hold())
            self.running.set()

    async def _hold(self) -> None:
        await self._elector.hold()
        raise _LeaseLost

    async def _follow_nodes(self) -> None:
        cursor = self._api.store.watch(NODES, self._api.store.rv)
        for item in self._api.store.items(NODES):
            self._cache.set_node(item.obj)
        while True:
            for change in await cursor.next():
                self._node_changed(change)

    def _node_changed(self, change: Change) -> None:
        node = change.item.obj
        if change.deleted:
            self._cache.remove_node(node["metadata"]["name"])
            return
        self._cache.set_node(node)
        events = [Event.NODE_ADDED] if change.before is None else node_events(change.before.obj, node)
        for event in events:
            self._move(event)

    async def _follow_pods(self) -> None:
        cursor = self._api.store.watch(PODS, self._api.store.rv)
        listed = sorted(self._api.store.items(PODS), key=lambda i: i.rv)
        for item in listed:
            self._pod_changed(Change(item, before=None))
        while True:
            for change in await cursor.next():
                self._pod_changed(change)

    def _pod_changed(self, change: Change) -> None:
        pod, before = change.item.obj, change.before.obj if change.before else None
        uid = podspec.uid(pod)
        gone = change.deleted or podspec.finished(pod)
        if _placed(pod) and not gone:
            self.queue.delete(uid)
            self._cache.place(pod, podspec.node_of(pod))
            self._move(Event.POD_UPDATED if _placed(before) else Event.POD_ADDED)
        elif gone:
            self._gone(pod, before)
        elif pod["spec"]["schedulerName"] in self._profiles:
            self._pending_changed(pod, before)

    def _gone(self, pod: Object, before: Object | None) -> None:
        """A deleted pod with a bind under way stays in the cache until the bind has ended."""
        uid = podspec.uid(pod)
        self.queue.delete(uid)
        if self._cache.is_assumed(uid):
            return
        nominated = self._cache.is_nominated(uid)
        self._cache.remove(uid)
        if _placed(before):
            self._move(Event.POD_DELETED)
        elif nominated:
            self._move(Event.POD_DELETED, pod["spec"].get("priority", 0))

    def _pending_changed(self, pod: Object, before: Object | None) -> None:
        if self._cache.is_assumed(podspec.uid(pod)):
            return
        self._cache.nominate(pod)
        old = (before or {}).get("status", {}).get("nominatedNodeName")
        if before is None:
            self.queue.add(pod, time.monotonic())
        else:
            self.queue.update(pod, time.monotonic())
        if old and old != pod["status"].get("nominatedNodeName"):
            self._move(Event.POD_DELETED, pod["spec"].get("priority", 0))
        self._changed.set()

    def _move(self, event: Event, up_to_priority: int | None = None) -> None:
        self.queue.move(event, time.monotonic(), up_to_priority)
        self._changed.set()

    async def _schedule(self) -> None:
        cycle = Cycle(self._config, self._cache, self._clients)
        while True:
            entry = self.queue.pop(time.monotonic())
            if entry is None:
                await self._wait()
            elif podspec.terminating(entry.pod):
                self.queue.done(entry)
            else:
                await self._attempt(cycle, entry)
                await asyncio.sleep(0)  # let the watches run between two cycles without extender calls

    async def _wait(self) -> None:
        self._changed.clear()
        expiry = self.queue.next_expiry()
        try:
            async with asyncio.timeout(None if expiry is None else max(0.0, expiry - time.monotonic()) + 0.001):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _attempt(self, cycle: Cycle, entry: QueuedPod) -> None:
        pod, profile = entry.pod, self._profiles[entry.pod["spec"]["schedulerName"]]
        try:
            node = await cycle.find(pod, profile)
        except FitError as error:
            self.queue.refused(entry, error.plugins, time.monotonic())
            self._report_failure(entry.pod, "Unschedulable", str(error), clear_nomination=profile.preempts)
        except (NoNodes, ExtenderError) as error:
            self.queue.failed(entry, time.monotonic())
            reason = "Unschedulable" if isinstance(error, NoNodes) else "SchedulerError"
            self._report_failure(entry.pod, reason, str(error), clear_nomination=True)
        else:
            self._cache.place(pod, node, assumed=True)
            self.queue.done(entry)
            self._group.create_task(self._bind(entry, profile, node))

    async def _bind(self, entry: QueuedPod, profile: Profile, node: str) -> None:
        pod = entry.pod
        namespace, name = podspec.key(pod)
        try:
            await self._bind_by_extender_or_here(pod, node)
        except (ExtenderError, ApiError) as error:
            if self._cache.forget(podspec.uid(pod)):
                self._move(Event.POD_DELETED)
            self._after_bind_failed(entry, str(error))
            return
        message = f"Successfully assigned {namespace}/{name} to {node}"
        self._recorder.record(PODS, pod, "Normal", "Scheduled", message, "Binding", profile.scheduler_name)

    async def _bind_by_extender_or_here(self, pod: Object, node: str) -> None:
        binder = next((e for e in self._clients if e.config.bind_verb and e.interested(pod)), None)
        if binder:
            try:
                return await binder.bind(pod, node)
            except ExtenderError:
                if not binder.config.ignorable:
                    raise
        metadata = {"name": pod["metadata"]["name"], "uid": podspec.uid(pod)}
        return self._api.bind(podspec.key(pod), {"metadata": metadata, "target": {"kind": "Node", "name": node}})

    def _after_bind_failed(self, entry: QueuedPod, message: str) -> None:
        present = self._api.store.get(PODS, podspec.key(entry.pod))
        if present is None or podspec.uid(present.obj) != podspec.uid(entry.pod) or not _pending(present.obj):
            return  # deleted, or bound after all: the watch delivers it
        entry.pod = present.obj
        self._cache.nominate(present.obj)
        self.queue.failed(entry, time.monotonic())
        self._changed.set()
        self._report_failure(present.obj, "SchedulerError", message, clear_nomination=True)

    def _report_failure(self, pod: Object, reason: str, message: str, clear_nomination: bool) -> None:
        """Record the Event FailedScheduling, and write the condition PodScheduled if it changes."""
        component = pod["spec"]["schedulerName"]
        self._recorder.record(PODS, pod, "Warning", "FailedScheduling", message, "Scheduling", component)
        old = podspec.condition(pod, "PodScheduled") or {}
        status: dict[str, Any] = {}
        if (old.get("status"), old.get("reason"), old.get("message")) != ("False", reason, message):
            status["conditions"] = [podspec.turned(pod, "PodScheduled", "False", reason, message)]
        if clear_nomination and pod["status"].get("nominatedNodeName"):
            status["nominatedNodeName"] = None
        if not status:
            return
        body = {"metadata": {"uid": podspec.uid(pod)}, "status": status}
        try:
            self._api.patch(PODS, podspec.key(pod), body, patch.STRATEGIC, _STATUS)
        except ApiError as error:
            _log.info("condition not written", pod=pod["metadata"]["name"], error=error.message)
