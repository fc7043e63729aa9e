"""Carries out the engine's effects: wakes, Events, annotations put back.

All of them may be repeated without harm, so a failure that may pass is tried again a few times and then let go: the
engine says it again where it still matters. Of equal effects that still wait only the latest is carried out.
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from extender.cluster.leadership import NotLeading, Permission
from extender.engine.effects import Effect, PodRef, PutBack, Report, Wake
from protos.contract import names
from protos.kube import errors, paths
from protos.kube.client import ApiClient
from protos.kube.events import Recorder, Reference

IN_FLIGHT = 16
"""Effects carried out at the same time; the rest of the client's 64 writes are left to Bindings."""
TRIES = 5
PAUSE_S = 0.25
"""Before the second try; doubled for each further one."""

log = structlog.get_logger(__name__)
_PASSES = (errors.Unavailable, errors.TooMany)
_MOOT = (errors.NotFound, errors.Conflict)
"""The pod is gone, replaced (its UID differs), or changed since: whoever saw that decides anew."""


class Actor:
    """A queue of effects and those who carry them out."""

    def __init__(
        self, client: ApiClient, permission: Permission, events: Recorder, failed: Callable[[str], None]
    ) -> None:
        """`failed` counts an effect that was given up, by the kind of effect."""
        self._client, self._permission, self._events, self._failed = client, permission, events, failed
        self.waiting: dict[tuple[str, ...], Effect] = {}
        self._some = asyncio.Semaphore(0)

    def submit(self, effects: Iterable[Effect]) -> None:
        """Queue effects; never blocks."""
        for effect in effects:
            key = _key(effect)
            if key not in self.waiting:
                self._some.release()
            self.waiting[key] = effect

    async def run(self) -> None:
        """Carry out what is submitted, for ever."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(IN_FLIGHT):
                workers.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await self._some.acquire()
            effect = self.waiting.pop(next(iter(self.waiting)))
            await self._permission.settled()
            await self._carry_out(effect)

    async def _carry_out(self, effect: Effect) -> None:
        kind = type(effect).__name__
        for attempt in range(1, TRIES + 1):
            try:
                await self._write(effect)
                log.debug("effect", kind=kind, pod=str(effect.pod))
                return
            except NotLeading as error:
                log.debug("effect_left", kind=kind, pod=str(effect.pod), why=error.why)
                return
            except _MOOT as error:
                log.debug("effect_moot", kind=kind, pod=str(effect.pod), why=str(error))
                return
            except errors.ApiError as error:
                if not isinstance(error, _PASSES) or attempt == TRIES:
                    log.warning("effect_failed", kind=kind, pod=str(effect.pod), error=str(error), tries=attempt)
                    self._failed(kind)
                    return
            await asyncio.sleep(PAUSE_S * 2 ** (attempt - 1))

    async def _write(self, effect: Effect) -> None:
        match effect:
            case Wake(pod):
                now = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")
                await self._annotate(pod, {names.WAKE: now})
            case PutBack(pod, key, value, version):
                await self._annotate(pod, {key: value}, resourceVersion=version)
            case Report(pod, reason, warning):
                self._permission.require()  # else the recorder takes it for told
                about = Reference("v1", "Pod", pod.name, pod.namespace, pod.uid)
                await self._events.post(about, reason.code, str(reason), kind="Warning" if warning else "Normal")

    async def _annotate(self, pod: PodRef, annotations: dict[str, Any], **preconditions: str) -> None:
        """Patch annotations of the pod with this UID; another pod of the same name answers 409."""
        metadata = {"uid": pod.uid, **preconditions, "annotations": annotations}
        path, params = paths.pod(pod.namespace, pod.name, "status"), {"fieldManager": names.EXTENDER}
        await self._client.patch(path, {"metadata": metadata}, params=params)


def _key(effect: Effect) -> tuple[str, ...]:
    match effect:
        case Wake(pod):
            return "wake", pod.uid
        case PutBack(pod, key, _, _):
            return "put back", pod.uid, key
        case Report(pod, reason, _):
            return "report", pod.uid, reason.code
