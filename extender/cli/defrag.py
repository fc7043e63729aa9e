"""`gangshare defrag`: shows the extender's plan, and carries it out with the user's credentials.

All writes use the user's own credentials. An annotation of the pending pods, set through pods/status, asks the extender
to reserve GPUs. Then the pods to move are evicted. The extender itself only holds the reservation.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec
from rich.console import RenderableType

from extender.cli import as_user, console, inspection
from extender.cli.errors import CommandError
from extender.engine.planning import defrag_plan
from extender.engine.policies.preemption import budgets
from extender.wire import answers
from extender.wire.listings import Move, Place, Plan, Room
from protos.contract import budget, codec, names, reservation
from protos.contract.budget import Budget, Budgets
from protos.contract.objects import Pod, decode_pod
from protos.contract.reservation import Reservation
from protos.kube import errors, paths
from protos.kube.client import MERGE_PATCH, ApiClient

PLAN_TIMEOUT_S = 60.0
"""Seconds that a plan may take: the extender plans between its decisions."""
RESERVATION_S = 300
"""Seconds that the reservation lasts."""
RESERVE_TIMEOUT_S, POLL_S = 15.0, 0.1

_budgets = msgspec.json.Decoder(Budgets)


def fetch(server: str, key: str, most: int, keep: Sequence[str]) -> bytes:
    """The extender's plan for NAMESPACE/NAME as JSON; raises CommandError."""
    query = [("max-moves", str(most)), *(("keep", pod) for pod in keep)]
    missing = f"--for is {key}: expected a pending pod or gang"
    return inspection.fetch(server, f"defrag/{key}", missing, query=query, timeout_s=PLAN_TIMEOUT_S)


def render(plan: Plan) -> Iterator[RenderableType]:
    """A table of the moves, and the verdict."""
    if plan.moves:
        table = console.columns("POD", "MEM", "FROM", "TO")
        for move in plan.moves:
            table.add_row(f"{move.namespace}/{move.name}", str(move.mem), _place(move.source), _place(move.target))
        yield table
    yield plan.verdict


def _place(place: Place | Room) -> str:
    return defrag_plan.place(place.node, place.gpus)


async def apply(plan: Plan, server: str, kubeconfig: str, context: str, say: Callable[[str], None]) -> None:
    """Carry the plan out with the credentials of a kubeconfig; raises CommandError that says how far it came."""
    async with as_user.client(kubeconfig, context, "the plan cannot be carried out") as client:
        await carry_out(plan, client, server, say)


async def carry_out(plan: Plan, client: ApiClient, server: str, say: Callable[[str], None]) -> None:
    """Reserve the GPUs, then evict the pods one by one; the first refused eviction ends it."""
    pods = [await _pod(client, move) for move in plan.moves]
    why = budgets.forbidden(pods, await _disruption_budgets(client, pods))
    if why:
        raise CommandError(
            f"{'; '.join(why)}.\nNo pod was evicted. Name pods that must stay with --keep NAMESPACE/NAME."
        )
    until = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=RESERVATION_S)
    async with _reserved(client, plan.rooms, until):
        for room in plan.rooms:
            await _wait(server, room)
        for number, move in enumerate(plan.moves):
            await _evict(client, move, f"{number} of {len(plan.moves)} pods were evicted")
            say(f"evicted {move.namespace}/{move.name} from {_place(move.source)}")
    places = ", ".join(dict.fromkeys(map(_place, plan.rooms)))
    say(f"reserved for {plan.who} until {until:%H:%M:%S} UTC: {places}")


async def _pod(client: ApiClient, move: Move) -> Pod:
    """The pod to move; raises CommandError if it was replaced, or may not be moved any more."""
    name = f"{move.namespace}/{move.name}"
    try:
        pod = decode_pod(await client.get(paths.pod(move.namespace, move.name)))
    except errors.NotFound as error:
        raise CommandError(f"{name} is gone: plan again") from error
    owned = any(owner.controller for owner in pod.metadata.owner_references)
    if pod.metadata.uid != move.uid or pod.metadata.annotations.get(names.RESTARTABLE) != "true" or not owned:
        raise CommandError(f"{name} is another pod by now, or may not be moved any more: plan again")
    return pod


async def _disruption_budgets(client: ApiClient, pods: Sequence[Pod]) -> list[Budget]:
    found: list[Budget] = []
    for namespace in sorted({pod.metadata.namespace for pod in pods}):
        path = paths.path(budget.API_VERSION, budget.PLURAL, namespace=namespace)
        found += (await client.fetch(path, _budgets)).items
    return found


@asynccontextmanager
async def _reserved(client: ApiClient, rooms: Sequence[Room], until: dt.datetime) -> AsyncIterator[None]:
    """Ask for the reservations, and withdraw them if the body fails."""
    asked: list[Room] = []
    try:
        for room in rooms:
            rooms_by_uid = {room.uid: reservation.Room(room.node, dict(room.containers))}
            request = Reservation(codec.VERSION, rooms_by_uid, f"{until:%Y-%m-%dT%H:%M:%SZ}")
            asked.append(room)
            await _annotate(client, room, reservation.encode(request))
        yield
    except BaseException:
        for room in asked:
            with suppress(errors.ApiError):  # the reservation expires by itself
                await _annotate(client, room, None)
        raise


async def _annotate(client: ApiClient, room: Room, text: str | None) -> None:
    """Set the annotation through pods/status with our own field manager: the extender accepts it only so."""
    body = {"metadata": {"uid": room.uid, "annotations": {names.RESERVATION: text}}}
    path, params = paths.pod(room.namespace, room.name, "status"), {"fieldManager": names.DEFRAG}
    try:
        await client.patch(path, body, content_type=MERGE_PATCH, params=params)
    except (errors.NotFound, errors.Conflict) as error:
        raise CommandError(f"{room.namespace}/{room.name} is gone, or another pod by now: plan again") from error


async def _wait(server: str, room: Room) -> None:
    """Wait until the extender has reserved the GPUs. A pod that is bound by now needs no reservation."""
    try:
        async with asyncio.timeout(RESERVE_TIMEOUT_S):
            while True:
                body = await asyncio.to_thread(inspection.fetch, server, f"explain/{room.namespace}/{room.name}")
                found = inspection.decode(body, answers.Pod)
                if found.uid == room.uid and (found.reservation is not None or found.node):
                    return
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        pod = f"{room.namespace}/{room.name}"
        why = f"the extender has not reserved {_place(room)} for {pod} within {RESERVE_TIMEOUT_S:g} s"
        ask = "Is its quota used up, does the extender run with --reservation-ttl 0, or do the clocks differ?"
        raise CommandError(f"{why}: no pod was evicted. {ask}") from error


async def _evict(client: ApiClient, move: Move, so_far: str) -> None:
    """Evict the pod with this UID. A pod that is gone already counts as evicted."""
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
        raise CommandError(
            f"{move.namespace}/{move.name} cannot be evicted: {error.message or error}.\n{so_far}."
        ) from error
