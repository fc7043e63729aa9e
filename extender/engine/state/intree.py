"""What kube-scheduler will hold against a node, as far as a plan must know it before it books anything.

Node selector, required node affinity, taints, cordoned nodes and totals of resources; nodes that are about to go, too;
which members must not be on one node together, and which must be spread over nodes (`apart`). Pod affinity, other
spreads and volumes stay with kube-scheduler: what it refuses for them is excluded from the next plan. Text that cannot
be decoded constrains nothing, since kube-scheduler has the last word anyway. Sources: the filters NodeAffinity,
TaintToleration, NodeUnschedulable and NodeResourcesFit of kube-scheduler; k8s.io/component-helpers/scheduling/corev1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain

import msgspec

from extender.engine.state import apart
from extender.engine.state.apart import Spread, decoded, read
from extender.engine.state.node_state import NodeState
from protos.contract.objects import Pod, Taint
from protos.contract.remembered import Remembered
from protos.contract.selector import Requirement

Amounts = tuple[tuple[str, int], ...]
"""Amounts by resource: cpu in thousandths of a core, everything else in whole units."""

REPELLING = ("NoSchedule", "NoExecute")
"""Effects of taints that keep a pod off; PreferNoSchedule is a wish."""
CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What a pod must tolerate to go to a node with spec.unschedulable."""

_NAME = "metadata.name"
"""The one field that matchFields can name."""


class Term(msgspec.Struct, frozen=True, rename="camel"):
    """One NodeSelectorTerm: all of it must hold; an empty one holds nowhere."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()

    def met(self, node: NodeState) -> bool:
        if not self.match_expressions and not self.match_fields:
            return False
        fields = {_NAME: node.name} if self.match_fields else {}
        return all(r.met(node.labels) for r in self.match_expressions) and all(r.met(fields) for r in self.match_fields)


class Toleration(msgspec.Struct, frozen=True):
    """A toleration of a pod. Operators that are not known here are left to kube-scheduler: they tolerate."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator not in ("", "Equal") or self.value == taint.value


class Constraints(msgspec.Struct, frozen=True, cache_hash=True):
    """Which nodes a pod may go to, and beside whom. Equal constraints admit the same nodes."""

    labels: tuple[tuple[str, str], ...] = ()
    """spec.nodeSelector, sorted."""
    terms: tuple[Term, ...] | None = None
    """Terms of the required node affinity, of which one must hold; None without any."""
    tolerations: tuple[Toleration, ...] = ()
    apart: tuple[str, ...] = ()
    """Words of which members on one node must not share any: see `apart`."""
    spread: Spread | None = None

    @property
    def selective(self) -> bool:
        """Whether labels or names of nodes are asked for."""
        return bool(self.labels) or self.terms is not None

    def admits(self, node: NodeState) -> bool:
        """Whether the pod may go to this node, resources apart; nobody goes to one that is about to go itself."""
        if node.leaving or ((node.taints or node.unschedulable) and not self._endures(node)):
            return False
        labels = node.labels
        if any(labels.get(key) != value for key, value in self.labels):
            return False
        return self.terms is None or any(term.met(node) for term in self.terms)

    def _endures(self, node: NodeState) -> bool:
        repelling = [taint for taint in node.taints if taint.effect in REPELLING]
        if node.unschedulable:
            repelling.append(CORDONED)
        return all(any(t.covers(taint) for t in self.tolerations) for taint in repelling)


ANYWHERE = Constraints()
"""Those of a pod that says nothing."""


def constraints(pod: Pod) -> Constraints:
    """What the pod's spec says; the same object for pods that say the same."""
    spec = pod.spec
    labels = tuple(sorted(spec.node_selector.items()))
    said = labels, read(spec.affinity), read(spec.tolerations), apart.words(pod), apart.spread(pod)
    found = _known.get(said)
    if found is None:
        _, affinity, tolerations, words, spread = said
        found = _known.put(said, Constraints(labels, _terms(affinity), _tolerations(tolerations), words, spread))
    return found


_Said = tuple[tuple[tuple[str, str], ...], bytes, bytes, tuple[str, ...], Spread | None]


def _length(said: _Said) -> int:
    """Characters of what is said, about."""
    labels, affinity, tolerations, words, spread = said
    shorter = sum(map(len, chain(chain.from_iterable(labels), words))) + (len(spread.who) if spread else 0)
    return shorter + len(affinity) + len(tolerations)


_known: Remembered[_Said, Constraints] = Remembered(2048, 2**21, _length)


def lacking(amounts: Amounts, allocatable: Mapping[str, int], used: Mapping[str, int]) -> str:
    """The first of the resources of which less is left than this, "" if all of it fits."""
    for resource, amount in amounts:
        if amount > allocatable.get(resource, 0) - used.get(resource, 0):
            return resource
    return ""


def counted(requests: Iterable[tuple[str, int]], ignored: Collection[str] = ()) -> Amounts:
    """Those requests that a node's totals must cover: nothing is asked where the amount is zero."""
    return tuple((resource, amount) for resource, amount in requests if amount > 0 and resource not in ignored)


def short_of(node: NodeState, requests: Amounts, ignored: Collection[str]) -> str:
    """What a node has too little of, "" if nothing; `ignored` are resources that its books count, if it has any."""
    return lacking(counted(requests, ignored if node.books is not None else ()), node.allocatable, node.used)


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[Term, ...] = ()


class _NodeAffinity(msgspec.Struct, frozen=True):
    required: _Selector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity | None = None


_affinities = msgspec.json.Decoder(_Affinity | None)
_toleration_lists = msgspec.json.Decoder(tuple[Toleration, ...] | None)


def _terms(affinity: bytes) -> tuple[Term, ...] | None:
    found = decoded(_affinities, affinity) if affinity else None
    required = found.node_affinity.required if found and found.node_affinity else None
    return required.node_selector_terms if required else None


def _tolerations(text: bytes) -> tuple[Toleration, ...]:
    try:
        return (_toleration_lists.decode(text) if text else None) or ()
    except (ValueError, RecursionError):
        return (Toleration(operator="Exists"),)
