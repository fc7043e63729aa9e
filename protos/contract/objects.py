"""Pods and Nodes as records: of the Kubernetes core/v1 types only the fields that a GPU scheduler reads.

Everything else in the JSON is skipped while decoding. Field names and meanings are Kubernetes' own, in snake case;
absent maps and lists are empty, absent scalars None (or the API's own default). Fields of type `Raw` are kept as JSON
text (empty if absent), for those few who look inside. The records are values: nothing changes them, and the garbage
collector need not look at them.
"""

from typing import Annotated

import msgspec

from protos.contract.bounds import NAME

Name = Annotated[str, msgspec.Meta(max_length=NAME.most)]
"""The API server lets no other pass, nor larger numbers."""
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Quantities = dict[str, str | int]
"""Amounts by resource name, as written; `protos.contract.quantity` reads them."""


class _Record(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What all records share."""


def _detach(record: _Record, *fields: str) -> None:
    """Copy raw fields out of the buffer they were decoded from, which would else live as long as they do."""
    for field in fields:
        value: msgspec.Raw = getattr(record, field)
        if value:
            msgspec.structs.force_setattr(record, field, value.copy())


class OwnerReference(_Record, frozen=True):
    """An entry of metadata.ownerReferences."""

    kind: str
    name: str
    uid: str
    controller: bool = False
    api_version: str = ""


class ObjectMeta(_Record, frozen=True):
    """The metadata of any object."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME.most)]
    namespace: Name = ""
    """Empty for cluster-scoped objects."""
    uid: Name = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    managed_fields: msgspec.Raw = msgspec.Raw()
    """Who wrote which field: a JSON list."""

    def __post_init__(self) -> None:
        _detach(self, "managed_fields")


class Condition(_Record, frozen=True):
    """A condition of a Pod or a Node; `status` is "True", "False" or "Unknown"."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Resources(_Record, frozen=True):
    """What a container (or a whole pod) asks."""

    limits: Quantities = {}
    requests: Quantities = {}


class Present(_Record, frozen=True):
    """An object of which only the presence counts."""


class EnvVar(_Record, frozen=True):
    """A variable of a container, with a value of its own or one from elsewhere."""

    name: str
    value: str | None = None
    value_from: Present | None = None


class EnvFromSource(_Record, frozen=True):
    """A ConfigMap or a Secret whose keys become variables, each behind the prefix."""

    prefix: str = ""


class VolumeMount(_Record, frozen=True):
    """Where a container sees a volume."""

    mount_path: str = ""


class ContainerPort(_Record, frozen=True):
    """An entry of a container's ports; with a host port it takes that of the node."""

    host_port: Int32 | None = None
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(_Record, frozen=True):
    """An app or init container; an init container with restartPolicy Always is a sidecar."""

    name: str
    resources: Resources | None = None
    restart_policy: str | None = None
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    ports: tuple[ContainerPort, ...] = ()


class SchedulingGate(_Record, frozen=True):
    """An entry of spec.schedulingGates: while there is one, the scheduler leaves the pod alone."""

    name: str


class SchedulingGroup(_Record, frozen=True):
    """spec.schedulingGroup (Kubernetes 1.36): the PodGroup of scheduling.k8s.io that the pod belongs to."""

    pod_group_name: Name | None = None


class WorkloadReference(_Record, frozen=True):
    """spec.workloadRef (Kubernetes 1.35 only): a pod group of a Workload, and which replica of it."""

    name: Name
    pod_group: Name
    pod_group_replica_key: Name = ""


class PodSpec(_Record, frozen=True):
    """What a pod wants."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    """Added to a pod that is there already (kubectl debug); they ask no resources."""
    resources: Resources | None = None
    """For the pod as a whole (pod-level resources)."""
    overhead: Quantities = {}
    node_name: Name | None = None
    scheduler_name: Name = "default-scheduler"
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None
    priority: Int32 | None = None
    priority_class_name: Name | None = None
    preemption_policy: str | None = None
    node_selector: dict[str, str] = {}
    affinity: msgspec.Raw = msgspec.Raw()
    tolerations: msgspec.Raw = msgspec.Raw()
    topology_spread_constraints: msgspec.Raw = msgspec.Raw()
    termination_grace_period_seconds: Int64 | None = None
    restart_policy: str | None = None

    def __post_init__(self) -> None:
        _detach(self, "affinity", "tolerations", "topology_spread_constraints")


class Waiting(_Record, frozen=True):
    """Why a container does not run yet, or not again yet."""

    reason: str = ""
    message: str = ""


class Terminated(_Record, frozen=True):
    """How a container ended."""

    exit_code: Int32
    reason: str = ""
    finished_at: str | None = None


class ContainerState(_Record, frozen=True):
    """At most one of the three is there; none means waiting."""

    waiting: Waiting | None = None
    running: Present | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Record, frozen=True):
    """What the kubelet says of a container."""

    name: str
    ready: bool = False
    started: bool | None = None
    state: ContainerState = ContainerState()
    resources: Resources | None = None
    """What it has, as its runtime says; None before Kubernetes 1.33."""
    allocated_resources: Quantities = {}
    """What the node has set aside for it."""


ENDED = ("Succeeded", "Failed")
"""Phases of a pod that runs no more."""


class PodStatus(_Record, frozen=True):
    """What became of a pod."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    nominated_node_name: str | None = None
    start_time: str | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(_Record, frozen=True):
    """A core/v1 Pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(_Record, frozen=True):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(_Record, frozen=True):
    """What a node was told."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(_Record, frozen=True):
    """What a node has; `allocatable` is what pods may ask of `capacity`."""

    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: tuple[Condition, ...] = ()


class Node(_Record, frozen=True):
    """A core/v1 Node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class RawObject(_Record, frozen=True):
    """Any object, whose spec and status are read later."""

    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


decode_pod = msgspec.json.Decoder(Pod).decode
decode_node = msgspec.json.Decoder(Node).decode
decode_raw = msgspec.json.Decoder(RawObject).decode
"""Each makes one of its JSON (bytes or msgspec.Raw); raises msgspec.DecodeError naming the field that is wrong."""
