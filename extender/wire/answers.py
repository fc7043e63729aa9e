"""The status port's JSON about nodes, pods and gangs. The extender writes it, the commands read it.

`/inspect` is an `Inspection`, `/inspect/NODE` a `NodePage`, `/gpus/UUID` a `GpuPage`, `/explain/NAMESPACE/NAME` a
`Pod`, `/explain/groups/NAMESPACE/NAME` a `Group`; `listings` has the other pages. Missing keys have their default and
unknown keys are ignored, so a command reads the answers of older and newer extenders.
"""

from collections.abc import Mapping

import msgspec

from protos.contract.allocation import Allocation


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Keys in camel case, in the order of the fields."""


class Verdict(Shape, frozen=True, kw_only=True):
    """The first two lines of an explanation: in short, in words, and what to do."""

    state: str = ""
    """Of a workload: running, starting, waiting or never, of a gang also completed, degraded or undoing; of a node, GPU
    or queue: open, full or closed."""
    headline: str = ""
    advice: str = ""


class OfPod(Shape, frozen=True, kw_only=True):
    """An object with the identity of a pod."""

    namespace: str
    name: str
    uid: str


class Ref(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """A pod with GPUs of a node. It has no name if the node's books know only its UID."""

    namespace: str = ""
    name: str = ""
    uid: str
    kept: bool = False
    """The pod is lost, and its GPUs are held for its replacement."""
    reserved: bool = False
    """The pod is pending, and the GPUs are reserved for it."""


class Holder(Ref, frozen=True, kw_only=True):
    """A pod on one GPU and its part of the GPU, in units and slices."""

    mem: int
    slices: int
    whole: bool
    queue: str = ""


class Gpu(Shape, frozen=True, kw_only=True):
    """One GPU of a node."""

    index: int
    """That of a MIG instance is 256 or more; people see it as `3:1`."""
    uuid: str
    model: str = ""
    profile: str = ""
    """The profile of a MIG instance, "" for a GPU."""
    health: str = "ok"
    cordoned: bool = False
    mem: int
    mem_used: int = 0
    slices_used: int = 0
    slices: int = 0
    """The time slices of a MIG instance; a GPU has those of its node."""
    whole: bool = False
    on_demand: bool = False
    """MIG instances are made of it when pods need them."""
    makes: str = ""
    """The instances that can be made of it now, each profile for itself, in words: `1g.10gb ×4, 3g.40gb ×1`."""
    pods: tuple[Holder, ...] = ()
    other_pods: int = 0
    """Pods on it that the caller may not see."""


class Node(Shape, frozen=True, kw_only=True):
    """One node's books. `unplaced` pods are on the node, but their GPUs are unknown."""

    name: str
    state: str = "ready"
    unit_mib: int = msgspec.field(default=1024, name="unitMiB")
    slices_per_gpu: int = 100
    problem: str | None = None
    unschedulable: bool = False
    """It is cordoned (kubectl cordon)."""
    gpus: tuple[Gpu, ...] = ()
    unplaced: tuple[Ref, ...] = ()
    other_unplaced: int = 0
    """Unplaced pods that the caller may not see."""
    isolation: str = ""
    """How it isolates parts of GPUs, in words; "" if it publishes nothing: all is promised."""
    isolation_why: str = ""
    """Why not better, as the node itself says."""


class Link(Shape, frozen=True, kw_only=True):
    """What joins two GPUs of a node, by index: NV<n>, PIX, PXB, PHB, NODE or SYS, as in `nvidia-smi topo -m`."""

    gpus: tuple[int, int]
    kind: str


class NodePage(Node, frozen=True, kw_only=True):
    """All about one node."""

    verdict: Verdict = Verdict()
    free: Mapping[str, str] = {}
    """What its pods leave of its CPU and memory."""
    links: tuple[Link, ...] = ()
    """Between its GPUs; a list of nodes has none."""


class GpuPage(Shape, frozen=True, kw_only=True):
    """All about one GPU."""

    node: str
    unit_mib: int = msgspec.field(default=1024, name="unitMiB")
    slices_per_gpu: int = 100
    gpu: Gpu
    verdict: Verdict = Verdict()
    isolation: str = ""
    """That of its node."""
    isolation_why: str = ""


class PlacedPod(OfPod, frozen=True, kw_only=True):
    """A pod that has a node."""

    node: str = ""
    queue: str = ""
    state: str = "waiting"
    allocation: Allocation | None = None
    problem: str | None = None


class Reservation(Shape, frozen=True, kw_only=True):
    """GPUs that are reserved for a pending pod, for so many seconds more."""

    node: str
    gpus: tuple[int, ...] = ()
    complete: bool = False
    """All of them are free."""
    seconds: float = 0.0


class Earliest(Shape, frozen=True, kw_only=True):
    """The earliest start of a workload: in seconds, its nodes, and the pod (NAMESPACE/NAME) that must end first."""

    who: str = ""
    """`gang NAMESPACE/NAME`, or a pod's NAMESPACE/NAME."""
    seconds: float
    sure: bool = True
    """All run times that it depends on are known."""
    nodes: tuple[str, ...] = ()
    after: str = ""


class WaitingPod(OfPod, frozen=True, kw_only=True):
    """A pending pod, the reason (a sentence and numbers), and its waiting time in seconds."""

    code: str = ""
    sentence: str = ""
    numbers: str = ""
    since: float = 0.0
    queue: str = ""
    group: str = ""
    """NAMESPACE/NAME of its gang."""
    reservation: Reservation | None = None
    earliest: Earliest | None = None
    """Set if it is the first of its queue."""


class Gang(Shape, frozen=True, kw_only=True):
    """A gang: its phase, the seconds in that phase, counts of its members and, if it is pending, the reason."""

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
    """Objects and parts of the extender in quarantine after an internal error."""


class Inspection(Shape, frozen=True, kw_only=True):
    """All of `/inspect`."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[PlacedPod, ...] = ()
    waiting: tuple[WaitingPod, ...] = ()
    groups: tuple[Gang, ...] = ()
    problems: Problems = Problems()


class Rank(Shape, frozen=True, kw_only=True):
    """The score of a node for one pod and the terms of the score, in thousandths of a GPU."""

    node: str
    score: int
    terms: Mapping[str, int] = {}
    here: bool = False
    """It is the pod's own node, scored without the pod."""


class NodeCount(Shape, frozen=True, kw_only=True):
    """How many nodes do not take a pod for one reason, and one of them; `why` is empty for nodes that would take it."""

    why: str
    nodes: int
    example: str = ""
    never: bool = False
    """It holds even if no pods were on the nodes."""


class Pod(WaitingPod, frozen=True, kw_only=True):
    """All about one pod: its node or, if it is pending, the reason."""

    verdict: Verdict = Verdict()
    node: str = ""
    state: str = "waiting"
    allocation: Allocation | None = None
    problem: str | None = None
    place: int = 0
    """Its place among the `in_line` pending workloads of its queue, 0 if it is not pending."""
    in_line: int = 0
    pending_pods: int = 0
    """The pending pods of its queue, as the queue itself counts them."""
    takes: Mapping[str, str] = {}
    """If it is pending: what it would use of its queue, by resource."""
    first: Earliest | None = None
    """The earliest start of the first of its queue."""
    asks_gpus: bool = True
    conflicts: tuple[str, ...] = ()
    """Values of its gang that differ or cannot be read."""
    nodes: tuple[NodeCount, ...] = ()
    """Of a pending pod: the nodes by reason, most nodes first."""
    ranking: tuple[Rank, ...] = ()
    """If scores were requested: the best nodes and its own, from the best."""


class Member(Shape, frozen=True, kw_only=True):
    """A pod of a gang. Its stage is absent, idle, planned, in bind, posted, bound or succeeded."""

    name: str
    uid: str
    role: str = ""
    stage: str
    node: str = ""


class Slot(Shape, frozen=True, kw_only=True):
    """The replacement hold of a lost member (its name), for so many seconds more."""

    name: str
    role: str = ""
    node: str
    gpus: tuple[int, ...] = ()
    seconds: float = 0.0


class Group(Gang, frozen=True, kw_only=True):
    """All about one gang. Its place in the queue is given as for a pod."""

    verdict: Verdict = Verdict()
    queue: str = ""
    place: int = 0
    in_line: int = 0
    pending_pods: int = 0
    takes: Mapping[str, str] = {}
    """If it is pending: what its smallest start would use of its queue."""
    first: Earliest | None = None
    earliest: Earliest | None = None
    provisioning: str = ""
    """What became of its ProvisioningRequest, "" if it has none."""
    conflicts: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()
    slots: tuple[Slot, ...] = ()
