"""What kube-scheduler sends to an extender and wants to hear.

The Go types carry no JSON tags, so keys are the Go field names, to the letter; embedded Pods and Nodes are ordinary
Kubernetes JSON. A field that is nil in Go arrives as null. Answers leave out what is empty and never hold null: a null
among preempt's values crashes kube-scheduler. Source: k8s.io/kube-scheduler/extender/v1, pkg/scheduler/extender.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from protos.contract.objects import Pod
from protos.contract.printable import printable

EVERYWHERE = "gangshare"
"""The key under which one sentence refuses every node; as long as no node bears this name, no node is meant."""

T = TypeVar("T")


class WireError(ValueError):
    """A request body that kube-scheduler would not send: names the field and what was expected."""


class _Shape(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """What all shapes share."""


class NodeList(msgspec.Struct, frozen=True):
    """Of a core/v1 NodeList: the nodes, unread. They are sent where the extender entry is not nodeCacheCapable."""

    items: tuple[msgspec.Raw, ...] | None = None


class Args(_Shape, frozen=True):
    """ExtenderArgs, of filter and prioritize: a pod and the nodes that are left for it, as names or as objects."""

    pod: Pod
    nodes: NodeList | None = None
    node_names: tuple[str, ...] | None = None

    def candidates(self) -> tuple[str, ...]:
        """The names of the nodes in question."""
        return self.node_names if self.node_names is not None else tuple(self.objects())

    def objects(self) -> dict[str, msgspec.Raw]:
        """Nodes by name, where they were sent as objects; raises WireError."""
        items = (self.nodes.items if self.nodes else None) or ()
        return {_decode(_named, item).metadata.name: item for item in items}


class Glance(_Shape, frozen=True):
    """ExtenderArgs, of which only the pod is read: the nodes are left as they were sent."""

    pod: Pod
    nodes: msgspec.Raw = msgspec.Raw(b"null")
    node_names: msgspec.Raw = msgspec.Raw(b"null")


class FilterResult(_Shape, frozen=True):
    """ExtenderFilterResult: the nodes that are left, in the form in which they were asked."""

    nodes: NodeList | None = None
    node_names: tuple[str, ...] | None = None
    failed_nodes: Mapping[str, str] = {}
    failed_and_unresolvable_nodes: Mapping[str, str] = {}
    error: str = ""


class HostPriority(_Shape, frozen=True):
    """One node's score, 0 to 10, in prioritize's list."""

    host: str
    score: int


class MetaPod(_Shape, frozen=True):
    """A victim, by UID."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(_Shape, frozen=True):
    """Whom a node would lose."""

    pods: tuple[MetaPod, ...] | None = ()
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)

    def uids(self) -> tuple[str, ...]:
        return tuple(pod.uid for pod in self.pods or ())


class Victims(_Shape, frozen=True):
    """The same with whole pods, where the extender entry is not nodeCacheCapable."""

    pods: tuple[Pod, ...] | None = ()
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)

    def meta(self) -> MetaVictims:
        return MetaVictims(tuple(MetaPod(pod.metadata.uid) for pod in self.pods or ()), self.num_pdb_violations)


class PreemptionArgs(_Shape, frozen=True):
    """ExtenderPreemptionArgs. From Kubernetes 1.38 on a node may come with no victims."""

    pod: Pod
    node_name_to_victims: Mapping[str, Victims | None] | None = None
    node_name_to_meta_victims: Mapping[str, MetaVictims | None] | None = None

    def victims(self) -> dict[str, MetaVictims]:
        """Victims by node, whichever form was sent."""
        if self.node_name_to_meta_victims is not None:
            return {node: victims or MetaVictims() for node, victims in self.node_name_to_meta_victims.items()}
        whole = self.node_name_to_victims or {}
        return {node: victims.meta() if victims else MetaVictims() for node, victims in whole.items()}


class PreemptionResult(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderPreemptionResult: always by UID."""

    node_name_to_meta_victims: Mapping[str, MetaVictims]


class BindingArgs(_Shape, frozen=True):
    """ExtenderBindingArgs."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class BindingResult(_Shape, frozen=True):
    """ExtenderBindingResult: no error is success."""

    error: str = ""


class _Meta(msgspec.Struct, frozen=True):
    name: str


class _Named(msgspec.Struct, frozen=True):
    metadata: _Meta


_named = msgspec.json.Decoder(_Named)
_args = msgspec.json.Decoder(Args)
_glance = msgspec.json.Decoder(Glance)
_preemption = msgspec.json.Decoder(PreemptionArgs)
_binding = msgspec.json.Decoder(BindingArgs)
_encoder = msgspec.json.Encoder()


def _decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise WireError(f"the body is not what kube-scheduler sends: {error}") from error


def args(body: bytes) -> Args:
    """The request of filter or prioritize; raises WireError."""
    return _decode(_args, body)


def glance(body: bytes) -> Glance:
    """The request of filter, read no further than its pod; raises WireError."""
    return _decode(_glance, body)


def unchanged(asked: Glance) -> bytes:
    """The JSON of the answer to filter that leaves all nodes, in kind."""
    return b'{"Nodes":%b,"NodeNames":%b}' % (bytes(asked.nodes), bytes(asked.node_names))


def preemption(body: bytes) -> PreemptionArgs:
    """The request of preempt; raises WireError."""
    return _decode(_preemption, body)


def binding(body: bytes) -> BindingArgs:
    """The request of bind; raises WireError."""
    return _decode(_binding, body)


def kept(asked: Args, nodes: Sequence[str]) -> FilterResult:
    """The answer to filter that leaves these nodes, in kind. What is not named needs no entry: absent is refused."""
    if asked.node_names is not None:
        return FilterResult(node_names=tuple(nodes))
    objects = asked.objects()
    return FilterResult(nodes=NodeList(tuple(objects[name] for name in nodes)))


def refused(asked: Args, sentence: str) -> FilterResult:
    """The answer to filter that leaves none, told once instead of once per node.

    The sentence goes into FailedAndUnresolvableNodes. FailedNodes would mean "removing pods may help" and make every
    node that bears it a candidate of in-tree preemption, whose dry run sees nothing of single GPUs: it ends in
    `expected at least one victim pod on node …`, with the nodes in an order that changes, and each changed message
    brings the pod back at once. Whether the pod is asked again does not hang on the map: kube-scheduler records its
    extender as rejector whenever fewer nodes come back than went out.
    Source: pkg/scheduler/schedule_one.go findNodesThatPassExtenders, framework/preemption DryRunPreemption.
    """
    told = {EVERYWHERE: printable(sentence)}  # kube-scheduler writes it into the pod's status, which people look at
    return msgspec.structs.replace(kept(asked, ()), failed_and_unresolvable_nodes=told)


def scores(by_node: Mapping[str, int]) -> tuple[HostPriority, ...]:
    """The answer to prioritize."""
    return tuple(HostPriority(host, score) for host, score in by_node.items())


def surviving(asked: PreemptionArgs, kept_victims: Mapping[str, Iterable[str]]) -> PreemptionResult:
    """The answer to preempt: of the nodes asked, those where these victims' going would help."""
    violations = {node: victims.num_pdb_violations for node, victims in asked.victims().items()}
    return PreemptionResult(
        {
            node: MetaVictims(tuple(MetaPod(uid) for uid in uids), violations.get(node, 0))
            for node, uids in kept_victims.items()
        }
    )


def encode(answer: Any) -> bytes:
    """The answer's JSON."""
    return _encoder.encode(answer)
