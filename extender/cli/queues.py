"""`gangshare queues`: the tree of queues, with fair shares, allocations and requests.

`--quotas` also lists Kubernetes' ResourceQuotas, read with the user's own credentials.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from rich.console import RenderableType

from extender.cli import console
from extender.cli.errors import CommandError
from extender.wire.listings import Queue, Queues
from protos.contract.objects import ObjectMeta, Quantities
from protos.contract.queue import GPUS
from protos.kube import credentials, errors, paths
from protos.kube.client import ApiClient

INDENT = "  "


class Used(msgspec.Struct, frozen=True):
    """The status of a ResourceQuota."""

    hard: Quantities = {}
    used: Quantities = {}


class Quota(msgspec.Struct, frozen=True):
    """A core/v1 ResourceQuota."""

    metadata: ObjectMeta
    status: Used = Used()


class _Quotas(msgspec.Struct, frozen=True):
    items: tuple[Quota, ...] = ()


_quotas = msgspec.json.Decoder(_Quotas)


async def quotas(kubeconfig: str, context: str) -> tuple[Quota, ...]:
    """All ResourceQuotas that the credentials may list; raises CommandError."""
    try:
        connection = await credentials.load(kubeconfig or None, context or None)
        async with ApiClient(connection, user_agent="gangshare-queues") as client:
            return (await client.fetch(paths.path("v1", "resourcequotas"), _quotas)).items
    except (errors.CredentialsError, errors.ApiError) as error:
        raise CommandError(f"the ResourceQuotas cannot be listed: {error}") from error


def render(found: Queues, quotas: Sequence[Quota] = ()) -> list[RenderableType]:
    """The whole page."""
    amounts = ("FAIR SHARE", "ALLOCATED", "REQUESTED", "CAPABILITY")
    table = console.columns("QUEUE", "RESOURCE", *amounts, "SHARE", "WAITING", "RUNNING", "STATE")
    parts: list[RenderableType] = [table]
    for queue in found.queues:
        for row in _rows(queue):
            table.add_row(*row)
        parts += [f"{queue.name}: {note}" for note in _notes(queue) if note]
    return [*parts, "", _limits(quotas)] if quotas else parts


def _notes(queue: Queue) -> Iterator[str]:
    yield from (queue.problem, queue.misplaced, queue.exceeded)
    if (pods := queue.strangers) is not None:
        yield (
            f"{pods.waiting} pending and {pods.running} running pods name it"
            f" from namespaces that it does not admit: {pods.namespaces}"
        )


def _rows(queue: Queue) -> Iterator[tuple[str, ...]]:
    """The row of GPUs with the queue's name, then the other resources with a limit or a fair share."""
    state = "closed" if queue.closed else "open"
    counts = (queue.share, str(queue.waiting), str(queue.running), state)
    yield (f"{INDENT * queue.depth}{queue.name}", GPUS, *_amounts(queue, GPUS), *counts)
    for resource in sorted({*queue.fair_share, *queue.guarantee, *queue.capability} - {GPUS}):
        yield ("", resource, *_amounts(queue, resource), "", "", "", "")


def _amounts(queue: Queue, resource: str) -> Iterator[str]:
    yield queue.fair_share.get(resource, "-")
    yield queue.allocated.get(resource, "0")
    yield queue.requested.get(resource, "0")
    yield queue.capability.get(resource, "-")


def _limits(quotas: Sequence[Quota]) -> RenderableType:
    table = console.columns("NAMESPACE", "RESOURCEQUOTA", "RESOURCE", "USED", "HARD")
    for quota in quotas:
        for resource, hard in sorted(quota.status.hard.items()):
            meta = quota.metadata
            table.add_row(meta.namespace, meta.name, resource, str(quota.status.used.get(resource, 0)), str(hard))
    return table
