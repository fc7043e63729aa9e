"""`gangshare resize pod`: another amount of GPU memory for a running pod, with the user's own credentials.

The command writes the wish onto the pod, and waits for the two answers there: of the extender, which books it, and of
the node's plugin, which changes the limit.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import NamedTuple

from extender.cli import as_user
from extender.cli.errors import CommandError
from protos.contract import allocation, codec, names, resize
from protos.contract.objects import ENDED, Pod, decode_pod
from protos.contract.resize import Limited, Resized, Wish
from protos.kube import paths
from protos.kube.client import ApiClient

POLL_S = 0.2
Say = Callable[[str], None]


class Asked(NamedTuple):
    """What the user wants: `units` of memory on each GPU of the container, "" for all that have parts."""

    key: str
    container: str
    units: int
    timeout_s: float
    kubeconfig: str
    context: str


def pod(asked: Asked, say: Say) -> None:
    """Resize a pod; raises CommandError that says why it was not done."""
    say(asyncio.run(_resize(asked)))


async def _resize(asked: Asked) -> str:
    async with as_user.client(asked.kubeconfig, asked.context, f"pod {asked.key} cannot be resized") as client:
        found = await _get(client, asked)
        wanted = Wish(codec.VERSION, secrets.token_hex(8), dict.fromkeys(_containers(found, asked), asked.units))
        metadata = {"uid": found.metadata.uid, "annotations": {names.RESIZE: resize.wish.encode(wanted)}}
        path = paths.pod(found.metadata.namespace, found.metadata.name)
        await client.patch(path, {"metadata": metadata}, params=as_user.BY)
        heard = ""
        try:
            async with asyncio.timeout(asked.timeout_s):
                while True:
                    found = await _get(client, asked)
                    answer, limits = _answers(found)
                    if answer is not None and answer.id == wanted.id:
                        heard = "it is booked, and the node's plugin has not changed the limit yet"
                        if answer.refused:
                            raise CommandError(f"pod {asked.key} is not resized: {answer.refused}")
                        if limits is not None and limits.id == wanted.id:
                            return _outcome(asked, wanted, answer, limits)
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            why = heard or "the extender has not answered: is it running, and is the pod ours?"
            raise CommandError(f"pod {asked.key}: no answer in {asked.timeout_s:g} s: {why}") from error


async def _get(client: ApiClient, asked: Asked) -> Pod:
    namespace, _, name = asked.key.partition("/")
    found = decode_pod(await client.get(paths.pod(namespace, name)))
    if not found.spec.node_name or found.status.phase in ENDED:
        state = "has ended" if found.spec.node_name else "is pending: change its requests"
        raise CommandError(f"pod {asked.key} {state}: only running pods are resized")
    return found


def _containers(found: Pod, asked: Asked) -> list[str]:
    """The containers that are meant."""
    if asked.container:
        return [asked.container]
    try:
        given = allocation.decode(found.metadata.annotations.get(names.ALLOCATION))
    except codec.ContractError:
        given = None
    shares = given.containers.items() if given is not None else ()
    parts = [name for name, own in shares if own and not any(share.whole for share in own)]
    if not parts:
        raise CommandError(f"pod {asked.key} has no parts of GPUs from Gangshare: only parts are resized")
    return parts


def _answers(found: Pod) -> tuple[Resized | None, Limited | None]:
    annotations = found.metadata.annotations
    try:
        limits = resize.limited.decode(annotations.get(names.LIMITED))
    except codec.ContractError:
        limits = None
    return resize.of_pod(found), limits


def _outcome(asked: Asked, wanted: Wish, answer: Resized, limits: Limited) -> str:
    if limits.failed:
        raise CommandError(f"pod {asked.key}: it is booked, and its limit was not changed: {limits.failed}")
    who = ", ".join(wanted.containers)
    more = max((answer.booked.get(name, 0) for name in wanted.containers), default=0) > asked.units
    beside = "; its booking stays at the most that it had" if more else ""
    return f"pod {asked.key}: {who} is limited to {asked.units} units of memory on each of its GPUs{beside}"
