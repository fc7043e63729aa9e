"""`gangshare move pod|group`: renames the queue of a pending workload, with the user's own credentials.

What names the queue is changed where it stands: on the pods, and on PodGroups of the gang.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from extender.cli import as_user, inspection
from extender.cli.errors import CommandError
from extender.wire.answers import Group, Pod
from extender.wire.listings import Queue, Queues
from gangfilter.naming import QUEUE_KEYS
from gangfilter.podgroups import KINDS
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import ObjectMeta, decode_pod
from protos.contract.queue import amount, worded
from protos.kube import errors, paths
from protos.kube.client import ApiClient

PENDING = (Phase.ASSEMBLING, Phase.WAITING)
SEEN_S, POLL_S = 15.0, 0.2
"""Seconds within which the extender knows of the change."""
Json = dict[str, Any]
Say = Callable[[str], None]
Rename = Callable[[ApiClient], Awaitable[None]]


class Asked(NamedTuple):
    """What the user wants: the workload NAMESPACE/NAME in the queue `to`."""

    key: str
    to: str
    server: str
    kubeconfig: str
    context: str


class _Spec(msgspec.Struct, frozen=True):
    queue: str | None = None


class _PodGroup(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: _Spec = _Spec()


_podgroups = msgspec.json.Decoder(_PodGroup)


# -- commands


def pod(asked: Asked, say: Say) -> None:
    """Move a pod; raises CommandError."""

    def look() -> Pod:
        missing = f"pod {asked.key} not found: expected a pod that has not ended"
        return inspection.decode(inspection.fetch(asked.server, f"explain/{asked.key}", missing), Pod)

    found = look()
    if found.state != "waiting":
        where = f" on {found.node}" if found.node else ""
        raise CommandError(f"pod {asked.key} is {found.state}{where}: only pending pods change their queue")
    if found.group:
        raise CommandError(
            f"pod {asked.key} is in the queue of its gang: `gangshare move group {found.group} --queue {asked.to}`"
        )
    _move(asked, f"pod {asked.key}", found, lambda client: _rename_pods(client, asked, [(found.name, found.uid)]), look)
    say(f"pod {asked.key} is in queue {asked.to}")


def group(asked: Asked, say: Say) -> None:
    """Move a gang; raises CommandError."""

    def look() -> Group:
        missing = f"group {asked.key} not found: expected a gang with pods or a PodGroup"
        return inspection.decode(inspection.fetch(asked.server, f"explain/groups/{asked.key}", missing), Group)

    found = look()
    if found.phase not in PENDING:
        raise CommandError(f"gang {asked.key} is {found.phase.lower()}: only pending gangs change their queue")
    if found.present and not found.members:
        raise CommandError(f"gang {asked.key} has {found.present} members: only the status port names so many")
    _move(asked, f"gang {asked.key}", found, lambda client: _rename_gang(client, asked, found), look)
    say(f"gang {asked.key} is in queue {asked.to}; later pods of its controller name the queue of its template")


def _move(asked: Asked, who: str, found: Pod | Group, rename: Rename, look: Callable[[], Pod | Group]) -> None:
    """Check the queue, rename it, and wait until the extender knows."""
    queues = inspection.decode(inspection.fetch(asked.server, "queues"), Queues).queues
    target = _target(queues, asked)
    never = _never(queues, target, found.takes)
    if never:
        raise CommandError(f"{who} can never start in queue {asked.to}: {never}")
    if found.queue != target.name or found.conflicts:  # an earlier move may have ended halfway
        asyncio.run(_carry_out(asked, who, rename))
        _await(who, target.name, look)


async def _carry_out(asked: Asked, who: str, rename: Rename) -> None:
    async with as_user.client(asked.kubeconfig, asked.context, f"{who} cannot be moved") as client:
        await rename(client)


def _await(who: str, queue: str, look: Callable[[], Pod | Group]) -> None:
    """Wait until the workload is in the queue; raises CommandError that says what keeps it elsewhere."""
    until = time.monotonic() + SEEN_S
    while (found := look()).queue != queue:
        if time.monotonic() > until:
            why = "; ".join([*found.conflicts, found.sentence][:3])
            raise CommandError(f"{who} was changed, and is in queue {found.queue} still: {why}")
        time.sleep(POLL_S)


# -- decisions


def _target(queues: Iterable[Queue], asked: Asked) -> Queue:
    """The other queue, which may be an ElasticQuota of the workload's namespace."""
    of_namespace = f"{asked.key.partition('/')[0]}/{asked.to}"
    found = {queue.name: queue for queue in queues}
    target = found.get(asked.to) or found.get(of_namespace)
    if target is None:
        raise CommandError(f"queue {asked.to!r} not found: `gangshare queues` shows all queues")
    return target


def _never(queues: Iterable[Queue], target: Queue, takes: Mapping[str, str]) -> str:
    """Why a workload that uses so much can never start in the queue, "" if it can."""
    by_name = {queue.name: queue for queue in queues}
    for queue in _upwards(by_name, target):
        for resource, asks in takes.items():
            most = queue.capability.get(resource)
            if most is not None and amount(resource, asks) > amount(resource, most):
                limit = worded(resource, amount(resource, most))
                return f"queue {queue.name} may have {limit}, and it asks {asks}"
    return ""


def _upwards(by_name: Mapping[str, Queue], queue: Queue) -> Iterator[Queue]:
    """The queue and those above it. Each is below its parent in depth, so this ends."""
    at: Queue | None = queue
    while at is not None:
        yield at
        above = by_name.get(at.parent) if not at.misplaced else None
        at = above if above is not None and above.depth < at.depth else None


def renamed(found: ObjectMeta, to: str, *, otherwise: bool) -> Json:
    """What names a pod's queue, with the new name; a pod that names none gets our annotation, if `otherwise`."""
    annotations, labels = (
        {key.name: to for key in QUEUE_KEYS if key.place == place and key.name in there}
        for place, there in (("annotation", found.annotations), ("label", found.labels))
    )
    if not (annotations or labels) and otherwise:
        annotations = {names.QUEUE: to}
    return {"annotations": annotations, "labels": labels}


# -- writes


async def _rename_gang(client: ApiClient, asked: Asked, found: Group) -> None:
    """PodGroups first, then the pods: members that name no queue follow a PodGroup."""
    declared = [await _rename_podgroup(client, kind.api_version, kind.plural, asked) for kind in KINDS]
    members = [(member.name, member.uid) for member in found.members]
    await _rename_pods(client, asked, members, otherwise=not any(declared))


async def _rename_podgroup(client: ApiClient, api_version: str, plural: str, asked: Asked) -> bool:
    """Rename the queue of a PodGroup; returns whether there is one that names it now."""
    namespace, _, name = asked.key.partition("/")
    path = paths.path(api_version, plural, namespace=namespace, name=name)
    try:
        found = await client.fetch(path, _podgroups)
    except (errors.NotFound, errors.Forbidden):  # most of these kinds are in no cluster
        return False
    annotations = {names.QUEUE: asked.to} if names.QUEUE in found.metadata.annotations else {}
    ours = api_version.startswith(f"{names.DOMAIN}/")
    spec = {"queue": asked.to} if found.spec.queue or (ours and not annotations) else {}
    if annotations or spec:
        metadata = {"uid": found.metadata.uid, "annotations": annotations}
        await client.patch(path, {"metadata": metadata, **({"spec": spec} if spec else {})}, params=as_user.BY)
    return bool(annotations or spec)


async def _rename_pods(
    client: ApiClient, asked: Asked, pods: Iterable[tuple[str, str]], *, otherwise: bool = True
) -> None:
    """Rename the queue of each of these pods, by name and UID. A pod that is gone needs no queue."""
    namespace = asked.key.partition("/")[0]
    for name, uid in pods:
        try:
            found = decode_pod(await client.get(paths.pod(namespace, name)))
            changed = renamed(found.metadata, asked.to, otherwise=otherwise)
            if found.metadata.uid == uid and any(changed.values()):
                await client.patch(paths.pod(namespace, name), {"metadata": {"uid": uid, **changed}}, params=as_user.BY)
        except errors.NotFound:
            continue
