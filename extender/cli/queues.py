"""`gangshare queues`: the tree of queues, what is due to each and what it has.

Kubernetes' own ResourceQuotas go on counting; they are read with the rights of whoever asks, and shown beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from rich.console import RenderableType

from extender.cli import console
from extender.cli.errors import CommandError
from extender.wire.listings import Queue, Queues, Strangers
from protos.contract.objects import ObjectMeta, Quantities
from protos.contract.queue import GPUS
from protos.kube import credentials, errors, paths
from protos.kube.client import ApiClient

INDENT = "  "
_COUNTS = ("WAITING", "RUNNING", "STATE")


class Used(msgspec.Struct, frozen=True):
    """Of a ResourceQuota: what there may be, and what there is."""

    hard: Quantities = {}
    used: Quantities = {}


class Quota(msgspec.Struct, frozen=True):
    """A core/v1 ResourceQuota: what its namespace may have, and has."""

    metadata: ObjectMeta
    status: Used = Used()


class _Quotas(msgspec.Struct, frozen=True):
    items: tuple[Quota, ...] = ()


_quotas = msgspec.json.Decoder(_Quotas)


async def quotas(kubeconfig: str, context: str) -> tuple[Quota, ...]:
    """All ResourceQuotas that the credentials of this kubeconfig may list; raises CommandError."""
    try:
        known = await credentials.load(kubeconfig or None, context or None)
        async with ApiClient(known, user_agent="gangshare-queues") as client:
            return (await client.fetch(paths.path("v1", "resourcequotas"), _quotas)).items
    except (errors.CredentialsError, errors.ApiError) as error:
        raise CommandError(f"the ResourceQuotas cannot be listed: {error}") from error


def render(found: Queues, quotas: Sequence[Quota] = ()) -> list[RenderableType]:
    """The whole page."""
    table = console.columns(
        "QUEUE", "RESOURCE", "FAIR SHARE", "ALLOCATED", "REQUESTED", "CAPABILITY", "SHARE", *_COUNTS
    )
    for queue in found.queues:
        for row in _rows(queue):
            table.add_row(*row)
    notes = [f"{each.name}: {why}" for each in found.queues for why in _notes(each) if why]
    parts: list[RenderableType] = [table, *notes]
    return [*parts, "", limits(quotas)] if quotas else parts


def _notes(queue: Queue) -> tuple[str, ...]:
    strangers = _strangers(queue.strangers) if queue.strangers is not None else ""
    return queue.problem, queue.misplaced, queue.exceeded, strangers


def _strangers(found: Strangers) -> str:
    pods = f"{found.waiting} pods that wait and {found.running} that run"
    return f"{pods} name it from namespaces that it does not admit: {found.namespaces}"


def _rows(queue: Queue) -> Iterator[tuple[str, ...]]:
    """GPUs beside the queue's name, then every other resource that the queue is bound by or has its due of."""
    named = {*queue.fair_share, *queue.guarantee, *queue.capability} - {GPUS}
    state = "closed" if queue.closed else "open"
    counts = (queue.share, str(queue.waiting), str(queue.running), state)
    yield (f"{INDENT * queue.depth}{queue.name}", GPUS, *_amounts(queue, GPUS), *counts)
    for resource in sorted(named):
        yield ("", resource, *_amounts(queue, resource), "", "", "", "")


def _amounts(queue: Queue, resource: str) -> tuple[str, str, str, str]:
    said: tuple[Mapping[str, str], ...] = (queue.allocated, queue.requested)
    allocated, requested = (amounts.get(resource, "0") for amounts in said)
    return queue.fair_share.get(resource, "-"), allocated, requested, queue.capability.get(resource, "-")


def limits(quotas: Sequence[Quota]) -> RenderableType:
    """One row for each resource of each ResourceQuota."""
    table = console.columns("NAMESPACE", "RESOURCEQUOTA", "RESOURCE", "USED", "HARD")
    for quota in quotas:
        for resource, hard in sorted(quota.status.hard.items()):
            meta = quota.metadata
            table.add_row(meta.namespace, meta.name, resource, str(quota.status.used.get(resource, 0)), str(hard))
    return table
