"""A small Job controller (batch/v1), as in kube-controller-manager.

It supports Indexed and plain Jobs, parallelism, completions, suspend, backoffLimit and the backoff after a failure.
A deleted pod counts as failed and is replaced while it terminates. Each pod keeps a finalizer until it is counted.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from extender.sim import podspec
from extender.sim.apiserver import errors, patch
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import JOBS, PODS, Object
from extender.sim.apiserver.store import Cursor, Key

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
_WRITER, _STATUS = Writer("kube-controller-manager"), Writer("kube-controller-manager", "status")
_DEFAULT_BACKOFF_LIMIT = 6


class _Count(msgspec.Struct):
    """The ended pods of a Job, deleted ones included."""

    succeeded: set[str] = msgspec.field(default_factory=set)
    failed: set[str] = msgspec.field(default_factory=set)
    done_indexes: set[int] = msgspec.field(default_factory=set)
    failed_at: float = 0.0


class JobController:
    """Runs every Job of an ``Api``. Each failure doubles the delay, which begins at ``backoff_seconds``."""

    def __init__(self, api: Api, backoff_seconds: float = 10.0) -> None:
        self._api, self._backoff = api, backoff_seconds
        self._counts: dict[str, _Count] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(self._api.store.watch(JOBS, self._api.store.rv)))
            group.create_task(self._follow(self._api.store.watch(PODS, self._api.store.rv)))
            for item in self._api.store.items(JOBS):
                self._sync(item.key)

    async def _follow(self, cursor: Cursor) -> None:
        while True:
            for change in await cursor.next():
                obj = change.item.obj
                owner = _controller(obj)
                if "template" in obj["spec"] and change.deleted:  # the garbage collector would delete its pods
                    self._delete(self._pods(obj))
                elif "template" in obj["spec"]:
                    self._sync(change.item.key)
                elif owner:
                    self._count(owner, obj, change.deleted)
                    self._sync((change.item.key[0], owner["name"]))

    def _count(self, owner: Object, pod: Object, gone: bool) -> None:
        count, uid = self._counts.setdefault(owner["uid"], _Count()), podspec.uid(pod)
        if uid in count.succeeded or uid in count.failed:
            pass
        elif pod["status"]["phase"] == "Succeeded":
            count.succeeded.add(uid)
            count.done_indexes.add(_index(pod))
        elif gone or podspec.finished(pod) or podspec.terminating(pod):
            count.failed.add(uid)
            count.failed_at = time.monotonic()
        else:
            return
        if not gone and TRACKING in (pod["metadata"].get("finalizers") or ()):
            with errors.tolerated(404, 409):
                body = {"metadata": {"uid": uid, "finalizers": None}}
                self._api.patch(PODS, podspec.key(pod), body, patch.MERGE, _WRITER)

    def _sync(self, key: Key) -> None:
        found = self._api.store.get(JOBS, key)
        if found is None or podspec.terminating(found.obj) or _ended(found.obj):
            return
        job, uid = found.obj, found.obj["metadata"]["uid"]
        count = self._counts.setdefault(uid, _Count())
        active = [pod for pod in self._pods(job) if not podspec.finished(pod) and not podspec.terminating(pod)]
        if len(count.failed) > job["spec"].get("backoffLimit", _DEFAULT_BACKOFF_LIMIT):
            self._end(job, active, "Failed", "BackoffLimitExceeded")
        elif len(count.succeeded) >= _completions(job):
            self._end(job, active, "Complete", "CompletionsReached")
        elif job["spec"].get("suspend"):
            self._delete(active)
        else:
            self._create_missing(job, count, active)
        self._write_status(key, count, active)

    def _create_missing(self, job: Object, count: _Count, active: list[Object]) -> None:
        wanted = min(job["spec"].get("parallelism", 1), _completions(job) - len(count.succeeded)) - len(active)
        waited = time.monotonic() - count.failed_at
        due = self._backoff * 2.0 ** min(len(count.failed) - 1, 10) if count.failed else 0.0
        if wanted > 0 and waited < due:
            asyncio.get_running_loop().call_later(due - waited, self._sync, podspec.key(job))
            return
        taken = {_index(pod) for pod in active} | count.done_indexes
        free = (index for index in range(_completions(job)) if index not in taken)
        for _ in range(wanted):
            index = next(free) if job["spec"].get("completionMode") == "Indexed" else None
            self._api.create(PODS, job["metadata"]["namespace"], _pod(job, index), _WRITER)

    def _pods(self, job: Object) -> list[Object]:
        namespace, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
        pods = [item.obj for item in self._api.store.items(PODS, namespace)]
        return [pod for pod in pods if (owner := _controller(pod)) and owner["uid"] == uid]

    def _end(self, job: Object, active: list[Object], kind: str, reason: str) -> None:
        self._delete(active)
        condition = {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": podspec.timestamp()}
        self._api.patch(JOBS, podspec.key(job), {"status": {"conditions": [condition]}}, patch.MERGE, _STATUS)

    def _delete(self, pods: list[Object]) -> None:
        for pod in pods:
            self._api.delete(PODS, podspec.key(pod), {})

    def _write_status(self, key: Key, count: _Count, active: list[Object]) -> None:
        numbers = {"active": len(active), "ready": sum(map(_ready, active))}
        status = {**numbers, "succeeded": len(count.succeeded), "failed": len(count.failed)}
        self._api.patch(JOBS, key, {"status": status}, patch.MERGE, _STATUS)


def _controller(pod: Object) -> Object | None:
    """The owner reference of the Job that controls the pod."""
    owners: list[Object] = pod["metadata"].get("ownerReferences") or []
    return next(
        (o for o in owners if o.get("controller") and (o["apiVersion"], o["kind"]) == ("batch/v1", "Job")), None
    )


def _ready(pod: Object) -> bool:
    found = podspec.condition(pod, "Ready")
    return found is not None and found["status"] == "True"


def _ended(job: Object) -> bool:
    return any(podspec.condition(job, kind) for kind in ("Complete", "Failed"))


def _completions(job: Object) -> int:
    return int(job["spec"].get("completions", job["spec"].get("parallelism", 1)))


def _index(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, -1))


def _pod(job: Object, index: int | None) -> Object:
    """A pod of the Job, with this index if the Job is Indexed."""
    metadata, template = job["metadata"], job["spec"]["template"]
    given = template.get("metadata") or {}
    mark = {} if index is None else {INDEX: str(index)}
    ours = {"controller-uid": metadata["uid"], "job-name": metadata["name"]}
    labels = {**(given.get("labels") or {}), **ours, **{f"batch.kubernetes.io/{k}": v for k, v in ours.items()}, **mark}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
    made = {
        "generateName": f"{metadata['name']}-" if index is None else f"{metadata['name']}-{index}-",
        "labels": labels,
        "annotations": {**(given.get("annotations") or {}), **mark},
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        "finalizers": [TRACKING],
    }
    return {"metadata": made, "spec": template["spec"]}
