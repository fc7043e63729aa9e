"""Pods and Nodes as records, with the fields of Kubernetes' core/v1 types that a GPU scheduler reads.

The decoder skips all other fields. Names and meanings are Kubernetes' own, in snake case; absent maps and lists are
empty, absent scalars None (or the API's default). Fields of type `Raw` stay JSON text (empty if absent) for the few
modules that parse them. Records are immutable, and the garbage collector does not track them.
"""

from typing import Annotated

import msgspec

from protos.contract.bounds import NAME

Name = Annotated[str, msgspec.Meta(max_length=NAME.most)]
"""The API server enforces this length, and the ranges below."""
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Quantities = dict[str, str | int]
"""Quantities by resource name; `protos.contract.quantity` parses them."""


class _Record(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The base of all records."""


def _detach(record: _Record, *fields: str) -> None:
    """Copy raw fields, which would otherwise keep the whole decoded buffer alive."""
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

    def __post_init__(self) -> None:
        """Cut texts that no object can have: the API server does not bound these."""
        for field in ("kind", "name", "uid", "api_version"):
            if len(text := getattr(self, field)) > NAME.most:
                msgspec.structs.force_setattr(self, field, text[: NAME.most])


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
    """The writers of fields, as a JSON list."""

    def __post_init__(self) -> None:
        _detach(self, "managed_fields")


class Condition(_Record, frozen=True):
    """A condition of an object; `status` is "True", "False" or "Unknown"."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Resources(_Record, frozen=True):
    """The resources of a container or a whole pod."""

    limits: Quantities = {}
    requests: Quantities = {}


class Present(_Record, frozen=True):
    """An object whose content does not matter."""


class EnvVar(_Record, frozen=True):
    """A variable of a container, with a value or a reference to one."""

    name: str
    value: str | None = None
    value_from: Present | None = None


class EnvFromSource(_Record, frozen=True):
    """A ConfigMap or Secret whose keys become variables with the prefix."""

    prefix: str = ""


class VolumeMount(_Record, frozen=True):
    """A volume mount of a container."""

    mount_path: str = ""


class ContainerPort(_Record, frozen=True):
    """An entry of a container's ports; a host port occupies the port of the node."""

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
    """An entry of spec.schedulingGates, which blocks the scheduling of the pod."""

    name: str


class SchedulingGroup(_Record, frozen=True):
    """spec.schedulingGroup (Kubernetes 1.36): the PodGroup of scheduling.k8s.io that the pod belongs to."""

    pod_group_name: Name | None = None


class WorkloadReference(_Record, frozen=True):
    """spec.workloadRef (Kubernetes 1.35 only): a pod group of a Workload, and its replica."""

    name: Name
    pod_group: Name
    pod_group_replica_key: Name = ""


class PodSpec(_Record, frozen=True):
    """The spec of a pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    """Added to an existing pod (kubectl debug), without resources."""
    resources: Resources | None = None
    """Pod-level resources."""
    overhead: Quantities = {}
    node_name: Name | None = None
    scheduler_name: str = "default-scheduler"
    """Of any length: the API server does not bound it."""
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


class Running(_Record, frozen=True):
    """When a container started."""

    started_at: str | None = None


class Terminated(_Record, frozen=True):
    """When a container ended."""

    finished_at: str | None = None


class ContainerState(_Record, frozen=True):
    """At most one of the fields is set; none means that the container waits."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Record, frozen=True):
    """The kubelet's status of a container."""

    name: str
    state: ContainerState = ContainerState()
    container_id: str = msgspec.field(default="", name="containerID")
    """The runtime and its ID of the container, like `containerd://…`; empty before it is created."""
    resources: Resources | None = None
    """Its resources according to the runtime; None before Kubernetes 1.33."""
    allocated_resources: Quantities = {}
    """The resources that the node has allocated to it."""


ENDED = ("Succeeded", "Failed")
"""Phases of a pod that has ended."""


class PodStatus(_Record, frozen=True):
    """The status of a pod."""

    phase: str = "Pending"
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
    """The spec of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(_Record, frozen=True):
    """The status of a node; `allocatable` is the part of `capacity` for pods."""

    capacity: Quantities = {}
    allocatable: Quantities = {}


class Node(_Record, frozen=True):
    """A core/v1 Node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class RawObject(_Record, frozen=True):
    """Any object; its spec and status are decoded later."""

    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


decode_pod = msgspec.json.Decoder(Pod).decode
decode_node = msgspec.json.Decoder(Node).decode
decode_raw = msgspec.json.Decoder(RawObject).decode
"""Decoders of JSON (bytes or msgspec.Raw); raise msgspec.DecodeError with the name of the wrong field."""
