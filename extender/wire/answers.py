"""What the status port answers, as JSON: nodes, pods and gangs. The extender writes these, its commands read them.

`/inspect` is an `Inspection`, `/inspect/NODE` a `Node`, `/explain/NAMESPACE/NAME` a `Pod`,
`/explain/groups/NAMESPACE/NAME` a `Group`; `listings` has the other pages. A key that is missing has its default, and
unknown keys are ignored: so a command reads older and newer extenders.
"""

from collections.abc import Mapping

import msgspec

from protos.contract.allocation import Allocation


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Keys in camel case, in the order of the fields."""


class Ref(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """A pod that has GPUs of a node. Without a name: the node's books know no more of it than its UID."""

    namespace: str = ""
    name: str = ""
    uid: str
    kept: bool = False
    """The pod is lost, and its room kept for the one that comes in its place."""
    reserved: bool = False
    """The pod waits, and this room is kept for it."""


class Holder(Ref, frozen=True, kw_only=True):
    """A pod on one GPU and what it takes of it; amounts in units and slices."""

    mem: int
    slices: int
    whole: bool


class Gpu(Shape, frozen=True, kw_only=True):
    """One GPU of a node's books."""

    index: int
    uuid: str
    model: str = ""
    health: str = "ok"
    cordoned: bool = False
    mem: int
    mem_used: int = 0
    slices_used: int = 0
    whole: bool = False
    pods: tuple[Holder, ...] = ()


class Node(Shape, frozen=True, kw_only=True):
    """One node's books. `unplaced` pods are on the node, but nobody says on which GPU."""

    name: str
    state: str = "ready"
    unit_mib: int = msgspec.field(default=1024, name="unitMiB")
    slices_per_gpu: int = 100
    problem: str | None = None
    gpus: tuple[Gpu, ...] = ()
    unplaced: tuple[Ref, ...] = ()


class PlacedPod(Shape, frozen=True, kw_only=True):
    """A pod that has a node."""

    namespace: str
    name: str
    uid: str
    node: str = ""
    state: str = "waiting"
    allocation: Allocation | None = None
    problem: str | None = None


class Reservation(Shape, frozen=True, kw_only=True):
    """Room that is kept for a pod that waits, for so many seconds more."""

    node: str
    gpus: tuple[int, ...] = ()
    complete: bool = False
    """All of it is free."""
    seconds: float = 0.0


class Earliest(Shape, frozen=True, kw_only=True):
    """In how many seconds one has room at the earliest, on which nodes, and whose end it waits for (NAMESPACE/NAME)."""

    who: str = ""
    """`gang NAMESPACE/NAME`, or a pod's NAMESPACE/NAME."""
    seconds: float
    sure: bool = True
    """All run times are known on which that rests."""
    nodes: tuple[str, ...] = ()
    after: str = ""


class WaitingPod(Shape, frozen=True, kw_only=True):
    """A pod without a node, why (a sentence and numbers) and for how many seconds."""

    namespace: str
    name: str
    uid: str
    code: str = ""
    sentence: str = ""
    numbers: str = ""
    since: float = 0.0
    queue: str = ""
    group: str = ""
    """NAMESPACE/NAME of its gang."""
    reservation: Reservation | None = None
    earliest: Earliest | None = None
    """Its own, if it is the first in line of its queue."""


class Gang(Shape, frozen=True, kw_only=True):
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


class Problems(Shape, frozen=True, kw_only=True):
    """Counts of what is wrong in the cluster."""

    forged: int = 0
    malformed: int = 0
    overused: int = 0
    set_aside: int = 0
    """Objects, and parts of the extender, that met an error of gangshare's own."""


class Inspection(Shape, frozen=True, kw_only=True):
    """All of `/inspect`."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[PlacedPod, ...] = ()
    waiting: tuple[WaitingPod, ...] = ()
    groups: tuple[Gang, ...] = ()
    problems: Problems = Problems()


class Rank(Shape, frozen=True, kw_only=True):
    """A node for one pod: the pod's score there, and the terms that make it, in thousandths of a GPU."""

    node: str
    score: int
    terms: Mapping[str, int] = {}
    here: bool = False
    """It is the pod's own, reckoned without the pod."""


class Pod(WaitingPod, frozen=True, kw_only=True):
    """All about one pod: where it is or, while it waits, why."""

    node: str = ""
    state: str = "waiting"
    allocation: Allocation | None = None
    problem: str | None = None
    place: int = 0
    """Which of those that wait in its queue (`in_line`) it is, 0 if it does not wait."""
    in_line: int = 0
    first: Earliest | None = None
    """Of the first in line of its queue."""
    asks_gpus: bool = True
    ranking: tuple[Rank, ...] = ()
    """The best nodes and its own, best first."""


class Member(Shape, frozen=True, kw_only=True):
    """A pod of a gang and how far it is: absent, idle, planned, in bind, posted, bound or succeeded."""

    name: str
    uid: str
    role: str = ""
    stage: str
    node: str = ""


class Slot(Shape, frozen=True, kw_only=True):
    """The room of a lost member (its name), kept for so many seconds more."""

    name: str
    role: str = ""
    node: str
    gpus: tuple[int, ...] = ()
    seconds: float = 0.0


class Group(Gang, frozen=True, kw_only=True):
    """All about one gang; its place in line as a pod's."""

    queue: str = ""
    place: int = 0
    in_line: int = 0
    first: Earliest | None = None
    earliest: Earliest | None = None
    conflicts: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()
    slots: tuple[Slot, ...] = ()
