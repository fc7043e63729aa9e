"""What the extender's status port tells: the books as people read them.

`/inspect` tells the whole cluster, `/inspect/NODE` one node, `/explain/NAMESPACE/NAME` one pod,
`/explain/groups/NAMESPACE/NAME` one gang, `/classes` the GpuClasses and models of GPUs, `/queues` the queues,
`/defrag/NAMESPACE/NAME` which moves make room for a pod or gang.
"""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from extender.cli.errors import CommandError
from protos.contract import names
from protos.contract.allocation import Allocation
from protos.contract.printable import printable, printable_json

DEFAULT_SERVER = "http://127.0.0.1:12346"
TIMEOUT_S = 10.0
TOKEN = names.TOKEN_VARIABLE
LONGEST_WHY = 1000
"""Bytes of a refusal that are shown."""
PORT_FORWARD = "kubectl -n gangshare-system port-forward deploy/gangshare-scheduler 12346"


class _Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Keys in camel case; unknown ones are ignored, so that a newer extender can be read."""


class Holder(_Shape, frozen=True, kw_only=True):
    """A pod on one GPU and what it takes of it; amounts in units and slices."""

    namespace: str = ""
    name: str = ""
    uid: str
    mem: int = 0
    slices: int = 0
    whole: bool = False
    kept: bool = False
    """The pod is lost, and its room kept for the one that comes in its place."""
    reserved: bool = False
    """The pod waits, and this room is kept for it."""


class Gpu(_Shape, frozen=True, kw_only=True):
    """One GPU of a node's books."""

    index: int
    uuid: str
    mem: int
    model: str = ""
    health: str = "ok"
    cordoned: bool = False
    mem_used: int = 0
    slices_used: int = 0
    whole: bool = False
    pods: tuple[Holder, ...] = ()


class Node(_Shape, frozen=True, kw_only=True):
    """One node's books. `unplaced` pods are on the node, but nobody says on which GPU."""

    name: str
    state: str = "ready"
    unit_mib: int = msgspec.field(default=1024, name="unitMiB")
    slices_per_gpu: int = 100
    problem: str | None = None
    gpus: tuple[Gpu, ...] = ()
    unplaced: tuple[Holder, ...] = ()


class Reservation(_Shape, frozen=True, kw_only=True):
    """Room that is kept for a pod that waits, for so many seconds more."""

    node: str
    gpus: tuple[int, ...] = ()
    complete: bool = False
    """All of it is free."""
    seconds: float = 0.0


class Rank(_Shape, frozen=True, kw_only=True):
    """A node for one pod: the pod's score there, and the terms that make it, in thousandths of a GPU."""

    node: str
    score: int
    terms: dict[str, int] = {}
    here: bool = False
    """It is the pod's own, reckoned without the pod."""


class Earliest(_Shape, frozen=True, kw_only=True):
    """In how many seconds one has room at the earliest, on which nodes, and whose end it waits for (NAMESPACE/NAME)."""

    who: str = ""
    """`gang NAMESPACE/NAME`, or a pod's NAMESPACE/NAME."""
    seconds: float
    sure: bool = True
    """All run times are known on which that rests."""
    nodes: tuple[str, ...] = ()
    after: str = ""


class Line(_Shape, frozen=True, kw_only=True):
    """Where a gang or pod stands that waits."""

    queue: str = ""
    place: int = 0
    """Which of those that wait in its queue (`in_line`) it is, 0 if it does not wait."""
    in_line: int = 0
    first: Earliest | None = None
    """Of the first in line of its queue. All three only where one gang or pod is asked for."""
    earliest: Earliest | None = None
    """Its own, if it is the first in line."""


class Pod(Line, frozen=True, kw_only=True):
    """A pod: where it is or, while it waits, why (a sentence and numbers) and for how many seconds."""

    namespace: str
    name: str
    uid: str
    state: str = "waiting"
    node: str = ""
    allocation: Allocation | None = None
    problem: str | None = None
    code: str = ""
    sentence: str = ""
    numbers: str = ""
    since: float = 0.0
    group: str = ""
    """NAMESPACE/NAME of the gang of a pod that waits."""
    reservation: Reservation | None = None
    asks_gpus: bool = True
    ranking: tuple[Rank, ...] = ()
    """The best nodes and its own, best first. Both only where one pod is asked for."""


class Member(_Shape, frozen=True, kw_only=True):
    """A pod of a gang and how far it is: absent, idle, planned, in bind, posted, bound or succeeded."""

    name: str
    uid: str
    stage: str
    role: str = ""
    node: str = ""


class Slot(_Shape, frozen=True, kw_only=True):
    """The room of a lost member (its name), kept for so many seconds more."""

    name: str
    node: str
    role: str = ""
    gpus: tuple[int, ...] = ()
    seconds: float = 0.0


class Group(Line, frozen=True, kw_only=True):
    """A gang: its phase for so many seconds, its members in numbers and, while it waits, why."""

    namespace: str
    name: str
    phase: str
    since: float = 0.0
    min_member: int | None = None
    epoch: int = 0
    present: int = 0
    bound: int = 0
    succeeded: int = 0
    code: str = ""
    sentence: str = ""
    numbers: str = ""
    conflicts: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()
    slots: tuple[Slot, ...] = ()
    """Both only where one gang is asked for."""


class Place(_Shape, frozen=True, kw_only=True):
    """GPUs of a node, by index."""

    node: str
    gpus: tuple[int, ...] = ()


class Move(_Shape, frozen=True, kw_only=True):
    """A pod to be moved, the units of GPU memory that it holds, and where there is room for it."""

    namespace: str
    name: str
    uid: str
    mem: int = 0
    source: Place = msgspec.field(name="from")
    target: Place = msgspec.field(name="to")


class Room(_Shape, frozen=True, kw_only=True):
    """Where a pod that waits then fits, with the UUIDs of its containers' GPUs."""

    namespace: str
    name: str
    uid: str
    node: str
    gpus: tuple[int, ...] = ()
    containers: dict[str, tuple[str, ...]] = {}


class Plan(_Shape, frozen=True, kw_only=True):
    """All of `/defrag/NAMESPACE/NAME`: whether somebody fits after these moves, and a sentence."""

    who: str = msgspec.field(name="for")
    fits: bool
    verdict: str
    moves: tuple[Move, ...] = ()
    rooms: tuple[Room, ...] = ()


class Problems(_Shape, frozen=True, kw_only=True):
    """Counts of what is wrong in the cluster."""

    forged: int = 0
    malformed: int = 0
    overused: int = 0
    set_aside: int = 0
    """Objects, and parts of the extender, that met an error of gangshare's own."""


class Inspection(_Shape, frozen=True, kw_only=True):
    """All of `/inspect`."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    waiting: tuple[Pod, ...] = ()
    groups: tuple[Group, ...] = ()
    problems: Problems = Problems()


class GpuClass(_Shape, frozen=True, kw_only=True):
    """A class: GPUs of it, those of them that are wholly free, nodes that have some, pods that wait and name it."""

    name: str
    description: str = ""
    problem: str | None = None
    gpus: int = 0
    free: int = 0
    nodes: int = 0
    waiting: int = 0


class MissingClass(_Shape, frozen=True, kw_only=True):
    """A class that does not exist, and how many pods wait for it."""

    name: str
    waiting: int = 0


class Model(_Shape, frozen=True, kw_only=True):
    """GPUs that are alike: units and MiB of memory, clock, CUDA compute capability, and how many there are."""

    model: str = ""
    mem: int = 0
    mem_mib: int = msgspec.field(default=0, name="memMiB")
    clock_mhz: int = msgspec.field(default=0, name="clockMHz")
    compute_capability: str = ""
    gpus: int = 0
    free: int = 0
    nodes: int = 0


class Strangers(_Shape, frozen=True, kw_only=True):
    """Pods that name a queue which does not admit their namespaces."""

    waiting: int
    running: int
    namespaces: str

    def __str__(self) -> str:
        pods = f"{self.waiting} pods that wait and {self.running} that run"
        return f"{pods} name it from namespaces that it does not admit: {self.namespaces}"


class Queue(_Shape, frozen=True, kw_only=True):
    """A queue, so many below the root: its limits, its fair share, and what it has and requests, by resource."""

    name: str
    depth: int = 0
    source: str = ""
    """API group and version of its object, "" if it has none."""
    parent: str = ""
    weight: int = 1
    priority: int = 0
    guarantee: dict[str, str] = {}
    deserved: dict[str, str] = {}
    fair_share: dict[str, str] = {}
    capability: dict[str, str] = {}
    allocated: dict[str, str] = {}
    requested: dict[str, str] = {}
    share: str = ""
    waiting: int = 0
    running: int = 0
    reclaimable: bool = True
    closed: bool = False
    namespaces: tuple[str, ...] = ()
    problem: str = ""
    misplaced: str = ""
    exceeded: str = ""
    strangers: Strangers | None = None


class Queues(_Shape, frozen=True, kw_only=True):
    """All of `/queues`: each queue after the one above it."""

    queues: tuple[Queue, ...] = ()


class Classes(_Shape, frozen=True, kw_only=True):
    """All of `/classes`."""

    classes: tuple[GpuClass, ...] = ()
    missing: tuple[MissingClass, ...] = ()
    models: tuple[Model, ...] = ()


Read = TypeVar("Read", Inspection, Node, Pod, Group, Classes, Queues, Plan)


def fetch(
    server: str, path: str, missing: str = "", *, query: Sequence[tuple[str, str]] = (), timeout_s: float = TIMEOUT_S
) -> bytes:
    """The JSON text at that path of the status port or the secure one; raises CommandError with what to do.

    Its strings are printable: they hold what tenants wrote, and are shown on a terminal.
    `missing` is what to say where the answer is that there is no such thing. The environment's GANGSHARE_TOKEN is sent
    as a bearer token.
    """
    if not server.startswith(("http://", "https://")):
        raise CommandError(f"server is {server!r}: expected a URL like {DEFAULT_SERVER}")
    url = f"{server.rstrip('/')}/{quote(path)}{'?' * bool(query)}{urlencode(query)}"
    request = urllib.request.Request(url, headers=_token(server))
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=timeout_s) as answer:
            return printable_json(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            if missing and error.code == HTTPStatus.NOT_FOUND:
                raise CommandError(missing) from error
            raise CommandError(_refused(url, error)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)
        raise CommandError(
            f"no extender answers at {server} ({cause}).\n"
            f"In another terminal: {PORT_FORWARD}\n"
            "Or name it by --server URL or GANGSHARE_SERVER."
        ) from error


def _token(server: str) -> dict[str, str]:
    token = os.environ.get(TOKEN, "")
    if not token:
        return {}
    if not server.startswith("https://"):
        raise CommandError(f"server is {server!r}: expected https://, or no {TOKEN}: others would read it on its way")
    return {"Authorization": f"Bearer {token}"}


def _refused(url: str, error: urllib.error.HTTPError) -> str:
    """What a port answered instead, and what to do about it."""
    why = printable(error.read(LONGEST_WHY).decode(errors="replace"))
    told = f"{url} answered {error.code} {error.reason}: {why or 'expected 200'}"
    match error.code:
        case HTTPStatus.UNAUTHORIZED:
            return f"{told}.\n{TOKEN} is to be a token of the cluster, as `kubectl create token ACCOUNT` prints one."
        case HTTPStatus.FORBIDDEN:
            return (
                f"{told}.\nEither ask by way of: {PORT_FORWARD}\n"
                f"or at the secure port (12349), with a {TOKEN} of somebody bound to the ClusterRole gangshare-viewer."
            )
    return told


def decode(body: bytes, shape: type[Read]) -> Read:
    """An answer of the status port as values; raises CommandError."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.DecodeError as error:
        raise CommandError(f"the status port answered something that is not its JSON: {error}") from error
