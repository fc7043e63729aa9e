"""`gangshare defrag`: the plan that the extender made, and carrying it out with the rights of whoever asks.

All writes are made with the user's own credentials: the room is asked for by an annotation of the pods that wait, set
through pods/status, and the pods in the way are evicted. The extender only keeps the room.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from rich.console import RenderableType

from extender.cli import console, inspection
from extender.cli.errors import CommandError
from extender.engine.planning import defrag_plan
from extender.engine.policies.preemption import budgets
from extender.wire import answers
from extender.wire.listings import Move, Place, Plan, Room
from protos.contract import budget, codec, names, reservation
from protos.contract.budget import Budget, Budgets
from protos.contract.objects import Pod, decode_pod
from protos.contract.reservation import Reservation
from protos.kube import credentials, errors, paths
from protos.kube.client import MERGE_PATCH, ApiClient

PLANNED_S = 60.0
"""Seconds that a plan may take: it is made beside all decisions."""
KEPT_S = 300
"""Seconds for which the extender is asked to keep the room."""
SEEN_S, POLL_S = 15.0, 0.1
"""Seconds until the extender must have seen that, and between two looks."""

_budgets = msgspec.json.Decoder(Budgets)
Kept = Callable[[Room], Awaitable[bool]]
"""Whether the extender keeps this room."""


def fetch(server: str, key: str, most: int, keep: Sequence[str]) -> bytes:
    """The plan for NAMESPACE/NAME as the extender tells it; raises CommandError."""
    query = [("max-moves", str(most)), *(("keep", pod) for pod in keep)]
    missing = f"--for is {key}: expected a pod or gang that waits for GPUs"
    return inspection.fetch(server, f"defrag/{key}", missing, query=query, timeout_s=PLANNED_S)


def render(plan: Plan) -> Iterator[RenderableType]:
    """The moves as a table, and the verdict."""
    if plan.moves:
        table = console.columns("POD", "MEM", "FROM", "TO")
        for move in plan.moves:
            table.add_row(f"{move.namespace}/{move.name}", str(move.mem), _place(move.source), _place(move.target))
        yield table
    yield plan.verdict


def _place(place: Place | Room) -> str:
    return defrag_plan.place(place.node, place.gpus)


async def apply(plan: Plan, server: str, kubeconfig: str, context: str, say: Callable[[str], None]) -> None:
    """Carry the plan out with the credentials of this kubeconfig; raises CommandError with how far it came."""
    try:
        known = await credentials.load(kubeconfig or None, context or None)
        async with ApiClient(known, user_agent="gangshare-defrag") as client:
            await carry_out(plan, client, kept_by(server), say)
    except (errors.CredentialsError, errors.ApiError) as error:
        raise CommandError(f"the API server did not do what was asked: {error}") from error


def kept_by(server: str) -> Kept:
    """Asks the extender at this URL whether it keeps a room; a pod that has a node by now needs none."""

    async def kept(room: Room) -> bool:
        body = await asyncio.to_thread(inspection.fetch, server, f"explain/{room.namespace}/{room.name}")
        found = inspection.decode(body, answers.Pod)
        return found.uid == room.uid and (found.reservation is not None or bool(found.node))

    return kept


async def carry_out(plan: Plan, client: ApiClient, kept: Kept, say: Callable[[str], None]) -> None:
    """Have the room kept, then evict the pods one after the other; the first that may not go ends it."""
    pods = [await _pod(client, move) for move in plan.moves]
    why = budgets.forbidden(pods, await _guards(client, pods))
    if why:
        raise CommandError(
            f"{'; '.join(why)}.\nNo pod was evicted. Name pods that must stay with --keep NAMESPACE/NAME."
        )
    until = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=KEPT_S)
    async with _reserved(client, plan.rooms, until):
        for room in plan.rooms:
            await _wait(kept, room)
        for number, move in enumerate(plan.moves):
            await _evict(client, move, f"{number} of {len(plan.moves)} pods were evicted")
            say(f"evicted {move.namespace}/{move.name} from {_place(move.source)}")
    kept_places = ", ".join(dict.fromkeys(map(_place, plan.rooms)))
    say(f"reserved for {plan.who} until {until:%H:%M:%S} UTC: {kept_places}")


async def _pod(client: ApiClient, move: Move) -> Pod:
    """The pod to be moved, if it is the one that was planned with and may be moved."""
    who = f"{move.namespace}/{move.name}"
    try:
        pod = decode_pod(await client.get(paths.pod(move.namespace, move.name)))
    except errors.NotFound as error:
        raise CommandError(f"{who} is gone: plan again") from error
    owned = any(owner.controller for owner in pod.metadata.owner_references)
    if pod.metadata.uid != move.uid or pod.metadata.annotations.get(names.RESTARTABLE) != "true" or not owned:
        raise CommandError(f"{who} is another pod by now, or may not be moved any more: plan again")
    return pod


async def _guards(client: ApiClient, pods: Sequence[Pod]) -> list[Budget]:
    found: list[Budget] = []
    for namespace in sorted({pod.metadata.namespace for pod in pods}):
        path = paths.path(budget.API_VERSION, budget.PLURAL, namespace=namespace)
        found += (await client.fetch(path, _budgets)).items
    return found


@asynccontextmanager
async def _reserved(client: ApiClient, rooms: Sequence[Room], until: dt.datetime) -> AsyncIterator[None]:
    """Ask for the room to be kept; not any more if what is done meanwhile fails."""
    asked: list[Room] = []
    try:
        for room in rooms:
            kept = {room.uid: reservation.Room(room.node, dict(room.containers))}
            told = Reservation(codec.VERSION, kept, f"{until:%Y-%m-%dT%H:%M:%SZ}")
            asked.append(room)
            await _annotate(client, room, reservation.encode(told))
        yield
    except BaseException:
        for room in asked:
            try:
                await _annotate(client, room, None)
            except errors.ApiError:
                continue  # it ends by itself
        raise


async def _annotate(client: ApiClient, room: Room, text: str | None) -> None:
    """Through pods/status, and under a manager of its own: the extender believes such annotations alone."""
    body = {"metadata": {"uid": room.uid, "annotations": {names.RESERVATION: text}}}
    path, params = paths.pod(room.namespace, room.name, "status"), {"fieldManager": names.DEFRAG}
    try:
        await client.patch(path, body, content_type=MERGE_PATCH, params=params)
    except (errors.NotFound, errors.Conflict) as error:
        raise CommandError(f"{room.namespace}/{room.name} is gone, or another pod by now: plan again") from error


async def _wait(kept: Kept, room: Room) -> None:
    try:
        async with asyncio.timeout(SEEN_S):
            while not await kept(room):  # noqa: ASYNC110  # another process is asked
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        who = f"{room.namespace}/{room.name}"
        why = f"the extender has not reserved {_place(room)} for {who} within {SEEN_S:g} s"
        ask = "Is its quota used up, does the extender run with --reservation-ttl 0, or do the clocks differ?"
        raise CommandError(f"{why}: no pod was evicted. {ask}") from error


async def _evict(client: ApiClient, move: Move, so_far: str) -> None:
    """Evict the pod with this UID. One that is gone by itself makes room as well."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": move.namespace, "name": move.name},
        "deleteOptions": {"preconditions": {"uid": move.uid}},
    }
    try:
        await client.post(paths.pod(move.namespace, move.name, "eviction"), body)
    except (errors.NotFound, errors.Conflict):
        return
    except errors.ApiError as error:
        raise CommandError(f"{move.namespace}/{move.name} may not go: {error.message or error}.\n{so_far}.") from error
