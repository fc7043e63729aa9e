"""`gangshare queue create|stop|resume`: Queues are written with the user's own credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from extender.cli import as_user
from extender.cli.errors import CommandError
from protos.contract import queue, queue_sources
from protos.kube import paths

DRY = {"dryRun": "All"}
"""The API server checks the object, and stores nothing."""
Json = dict[str, Any]


def manifest(name: str, fields: Mapping[str, Any]) -> Json:
    """A Queue with those fields of `spec` that are set; raises CommandError for values that the extender refuses."""
    spec = {field: value for field, value in fields.items() if value not in (None, "", {}, [])}
    made = {"apiVersion": queue.API_VERSION, "kind": queue.KIND, "metadata": {"name": name}, "spec": spec}
    problem = queue_sources.decode(queue_sources.OWN, msgspec.json.encode(made)).problem
    if problem:
        raise CommandError(f"queue {name!r}: {problem}")
    return made


def amounts(option: str, given: Sequence[str]) -> dict[str, str]:
    """Amounts by resource from `gpus=8,cpu=64`; raises CommandError that names the option."""
    pairs = [pair.partition("=") for text in given for pair in text.split(",")]
    for resource, _, amount in pairs:
        if not (resource and amount):
            raise CommandError(f"{option} is {','.join(given)!r}: expected RESOURCE=AMOUNT, as in gpus=8,cpu=64")
    return {resource: amount for resource, _, amount in pairs}


async def create(made: Json, kubeconfig: str, context: str, *, dry: bool) -> bytes:
    """The Queue as the API server stores it, or would (`dry`); raises CommandError."""
    what, params = f"queue {made['metadata']['name']!r} cannot be created", {**as_user.BY, **(DRY if dry else {})}
    async with as_user.client(kubeconfig, context, what) as client:
        body = await client.post(paths.path(queue.API_VERSION, queue.PLURAL), made, params=params)
    stored = msgspec.json.decode(body)
    stored["metadata"].pop("managedFields", None)
    return msgspec.json.encode(stored)


async def close(name: str, kubeconfig: str, context: str, *, closed: bool) -> None:
    """Set whether workloads start in the queue; raises CommandError."""
    what = f"queue {name!r} cannot be {'stopped' if closed else 'resumed'}"
    async with as_user.client(kubeconfig, context, what) as client:
        body = {"spec": {"closed": closed}}
        await client.patch(paths.path(queue.API_VERSION, queue.PLURAL, name=name), body, params=as_user.BY)
