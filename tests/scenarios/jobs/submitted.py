"""What an operator makes of a job, and making it: once, or again and again."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from protos.contract import names
from tests.scenarios.world import Object, World

GROUP_NAME = "scheduling.k8s.io/group-name"
_POLL_S, _INQUEUE_S = 0.1, 30.0


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator makes of a job."""

    group: Object | None = None
    pods: tuple[Object, ...] = ()
    jobs: tuple[Object, ...] = ()
    """Jobs of batch/v1, which make their pods themselves."""
    waits: bool = False
    """Whether pods are made only when the PodGroup has left the phase Pending."""

    @property
    def names(self) -> list[str]:
        """The pods' names, of those that have one of their own."""
        return [pod["metadata"]["name"] for pod in self.pods]


async def submit(world: World, job: Submitted) -> None:
    """Make everything, in the operator's order."""
    if job.group:
        await world.create(job.group)
    if job.group and job.waits:
        await world.wait(lambda: _admitted(world, job.group), _INQUEUE_S, "the PodGroup has left Pending")
    for pod in job.pods:
        await world.create_pod(pod)
    for one in job.jobs:
        await world.create(one)


async def _admitted(world: World, group: Object | None) -> bool:
    assert group
    metadata = group["metadata"]
    namespace = metadata.get("namespace", "default")
    found = await world.get(group["apiVersion"], "PodGroup", metadata["name"], namespace)
    return bool(found) and (found or {}).get("status", {}).get("phase", "") not in ("", "Pending")


@asynccontextmanager
async def operated(world: World, job: Submitted) -> AsyncIterator[None]:
    """Submit, and keep the pods there until the block ends."""
    await submit(world, job)
    async with kept(world, job):
        yield


@asynccontextmanager
async def kept(world: World, job: Submitted) -> AsyncIterator[None]:
    """Make each pod anew that fails or goes, under its old name, until the block ends."""
    keeping = asyncio.create_task(_keep(world, job))
    try:
        yield
    finally:
        keeping.cancel()
        (ended,) = await asyncio.gather(keeping, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended


async def _keep(world: World, job: Submitted) -> None:
    while True:
        for manifest in job.pods:
            metadata = manifest["metadata"]
            key = (metadata["namespace"], metadata["name"])
            pod = await world.pod(*key)
            if pod and pod["status"].get("phase") == "Failed" and "deletionTimestamp" not in pod["metadata"]:
                await world.delete_pod(*key)
            elif pod is None:
                await world.create_pod(manifest)
        await asyncio.sleep(_POLL_S)


def gang(name: str, pods: Sequence[Object], min_member: int | None = None, **more: str) -> Submitted:
    """Pods in our own dialect, without any PodGroup. ``more``: further keys of ours, by their names in Python."""
    least = {names.GROUP: name, names.MIN_MEMBER: str(min_member or len(pods))}
    ours = least | {f"{names.DOMAIN}/{key.replace('_', '-')}": value for key, value in more.items()}
    return Submitted(pods=tuple(_annotated(pod, ours) for pod in pods))


def controlled(job: Submitted) -> Submitted:
    """The same with a controller, which is thought to make lost pods anew."""
    reference = owner("example.com/v1", "Training", "training")
    return msgspec.structs.replace(job, pods=tuple(owned(pod, reference) for pod in job.pods))


def _annotated(pod: Object, annotations: Mapping[str, str]) -> Object:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}}}


def owner(api_version: str, kind: str, name: str, uid: str = "") -> Object:
    """A controller's reference to a job."""
    found = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid or str(uuid.uuid4())}
    return {**found, "controller": True, "blockOwnerDeletion": True}


def owned(pod: Object, owner: Object) -> Object:
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}
