"""kube-scheduler's questions to an extender and the answers it expects.

The Go types carry no JSON tags, so keys are the Go field names, to the letter; embedded Pods and Nodes are ordinary
Kubernetes JSON. A field that is nil in Go arrives as null. Answers leave out what is empty and never hold null: a null
among preempt's values crashes kube-scheduler. Source: k8s.io/kube-scheduler/extender/v1, pkg/scheduler/extender.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from protos.contract.objects import Pod
from protos.contract.printable import printable

EVERYWHERE = "gangshare"
"""The key of the one sentence that refuses every node. It works as long as no node has this name."""

T = TypeVar("T")


class WireError(ValueError):
    """A request body that kube-scheduler would not send. It names the field and what was expected."""


class _Shape(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """Keys are Go field names, and empty values are left out."""


class NodeList(msgspec.Struct, frozen=True):
    """A core/v1 NodeList with undecoded nodes. It is sent if the extender entry is not nodeCacheCapable."""

    items: tuple[msgspec.Raw, ...] | None = None


class Args(_Shape, frozen=True):
    """ExtenderArgs of filter and prioritize: a pod and its candidate nodes, as names or as objects."""

    pod: Pod
    nodes: NodeList | None = None
    node_names: tuple[str, ...] | None = None

    def candidates(self) -> tuple[str, ...]:
        """The names of the candidate nodes; raises WireError."""
        return self.node_names if self.node_names is not None else tuple(self.objects())

    def objects(self) -> dict[str, msgspec.Raw]:
        """The nodes that were sent as objects, by name; raises WireError."""
        items = (self.nodes.items if self.nodes else None) or ()
        return {_decode(_named, item).metadata.name: item for item in items}


class PodOnly(_Shape, frozen=True):
    """ExtenderArgs of which only the pod is decoded."""

    pod: Pod
    nodes: msgspec.Raw = msgspec.Raw(b"null")
    node_names: msgspec.Raw = msgspec.Raw(b"null")


class FilterResult(_Shape, frozen=True):
    """ExtenderFilterResult: the nodes that remain, as names or objects as in the question."""

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
    """The victims on one node."""

    pods: tuple[MetaPod, ...] | None = ()
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)

    def uids(self) -> tuple[str, ...]:
        return tuple(pod.uid for pod in self.pods or ())


class Victims(_Shape, frozen=True):
    """The same with whole pods, sent if the extender entry is not nodeCacheCapable."""

    pods: tuple[Pod, ...] | None = ()
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)

    def meta(self) -> MetaVictims:
        return MetaVictims(tuple(MetaPod(pod.metadata.uid) for pod in self.pods or ()), self.num_pdb_violations)


class PreemptionArgs(_Shape, frozen=True):
    """ExtenderPreemptionArgs. From Kubernetes 1.38 on, a node may have null in place of victims."""

    pod: Pod
    node_name_to_victims: Mapping[str, Victims | None] | None = None
    node_name_to_meta_victims: Mapping[str, MetaVictims | None] | None = None

    def victims(self) -> dict[str, MetaVictims]:
        """Victims by node, from either form."""
        if self.node_name_to_meta_victims is not None:
            return {node: victims or MetaVictims() for node, victims in self.node_name_to_meta_victims.items()}
        whole = self.node_name_to_victims or {}
        return {node: victims.meta() if victims else MetaVictims() for node, victims in whole.items()}


class PreemptionResult(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderPreemptionResult, with victims by UID."""

    node_name_to_meta_victims: Mapping[str, MetaVictims]


class BindingArgs(_Shape, frozen=True):
    """ExtenderBindingArgs."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class BindingResult(_Shape, frozen=True):
    """ExtenderBindingResult. No error means success."""

    error: str = ""


class _Meta(msgspec.Struct, frozen=True):
    name: str


class _Named(msgspec.Struct, frozen=True):
    metadata: _Meta


_named = msgspec.json.Decoder(_Named)


def _decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise WireError(f"the body is not what kube-scheduler sends: {error}") from error


args = partial(_decode, msgspec.json.Decoder(Args))
"""The request of filter or prioritize; raises WireError."""
pod_only = partial(_decode, msgspec.json.Decoder(PodOnly))
"""The pod of a request of filter; raises WireError."""
preemption = partial(_decode, msgspec.json.Decoder(PreemptionArgs))
"""The request of preempt; raises WireError."""
binding = partial(_decode, msgspec.json.Decoder(BindingArgs))
"""The request of bind; raises WireError."""
encode = msgspec.json.Encoder().encode
"""The JSON of an answer."""


def unchanged(asked: PodOnly) -> bytes:
    """The JSON of an answer to filter that keeps all nodes."""
    return b'{"Nodes":%b,"NodeNames":%b}' % (bytes(asked.nodes), bytes(asked.node_names))


def kept(asked: Args, nodes: Sequence[str]) -> FilterResult:
    """The answer to filter that keeps these nodes. kube-scheduler takes all others as refused."""
    if asked.node_names is not None:
        return FilterResult(node_names=tuple(nodes))
    objects = asked.objects()
    return FilterResult(nodes=NodeList(tuple(objects[name] for name in nodes)))


def refused(asked: Args, sentence: str) -> FilterResult:
    """The answer to filter that refuses all nodes with one sentence.

    The sentence goes into FailedAndUnresolvableNodes. FailedNodes would mean "removing pods may help": each node there
    becomes a candidate of in-tree preemption, whose dry run knows no single GPUs. It fails with `expected at least one
    victim pod on node …` and a changing order of nodes, and each new message brings the pod back at once. The map does
    not decide about a retry: kube-scheduler records its extender as rejector whenever it returns fewer nodes.
    Source: pkg/scheduler/schedule_one.go findNodesThatPassExtenders, framework/preemption DryRunPreemption.
    """
    failed = {EVERYWHERE: printable(sentence)}  # kube-scheduler writes it into the pod's status
    return msgspec.structs.replace(kept(asked, ()), failed_and_unresolvable_nodes=failed)


def scores(by_node: Mapping[str, int]) -> tuple[HostPriority, ...]:
    """The answer to prioritize."""
    return tuple(HostPriority(host, score) for host, score in by_node.items())


def surviving(asked: PreemptionArgs, kept_victims: Mapping[str, Iterable[str]]) -> PreemptionResult:
    """The answer to preempt: the nodes where evicting these victims helps."""
    violations = {node: victims.num_pdb_violations for node, victims in asked.victims().items()}
    victims = {
        node: MetaVictims(tuple(MetaPod(uid) for uid in uids), violations.get(node, 0))
        for node, uids in kept_victims.items()
    }
    return PreemptionResult(victims)
