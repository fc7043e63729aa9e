"""The filters of kube-scheduler that a plan must respect before it books anything.

Node selector, required node affinity, taints, cordons and resources; drained nodes; members that exclude each other or
must be spread (`apart`). Pod affinity, other spreads and volumes are left to kube-scheduler: a node that it refuses for
them is excluded from the next plan. Text that cannot be decoded constrains nothing, as kube-scheduler has the last
word. Sources: the filters NodeAffinity,
TaintToleration, NodeUnschedulable and NodeResourcesFit of kube-scheduler; k8s.io/component-helpers/scheduling/corev1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from extender.engine.state import apart
from extender.engine.state.apart import Spread, decoded, read
from extender.engine.state.node_state import NodeState
from protos.contract.bounds import REQUIRED_VALUES, REQUIREMENTS
from protos.contract.objects import Pod, Taint
from protos.contract.remembered import Remembered
from protos.contract.selector import Requirement

Amounts = tuple[tuple[str, int], ...]
"""Amounts by resource: cpu in thousandths of a core, everything else in whole units."""

REPELLING = ("NoSchedule", "NoExecute")
"""The taint effects that repel pods; PreferNoSchedule is only a preference."""
CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint that stands for spec.unschedulable."""
LEAVING, UNSCHEDULABLE = "about to be removed", "cordoned"
SELECTOR, AFFINITY = "node selector", "node affinity"
"""What keeps a pod off a node, beside taints."""
_NAME = "metadata.name"
"""The only field that matchFields can select."""


class Term(msgspec.Struct, frozen=True, rename="camel"):
    """One NodeSelectorTerm: all requirements must hold; an empty term selects no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()

    def met(self, node: NodeState) -> bool:
        if not self.match_expressions and not self.match_fields:
            return False
        fields = {_NAME: node.name} if self.match_fields else {}
        return all(r.met(node.labels) for r in self.match_expressions) and all(r.met(fields) for r in self.match_fields)


class Toleration(msgspec.Struct, frozen=True):
    """A toleration of a pod. An unknown operator tolerates: kube-scheduler decides."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator not in ("", "Equal") or self.value == taint.value


class Constraints(msgspec.Struct, frozen=True, cache_hash=True):
    """Which nodes a pod may run on, and beside which members. Equal constraints admit the same nodes."""

    labels: tuple[tuple[str, str], ...] = ()
    """spec.nodeSelector, sorted."""
    terms: tuple[Term, ...] | None = None
    """Terms of the required node affinity, of which one must hold; None if there is no such affinity."""
    tolerations: tuple[Toleration, ...] = ()
    cost: int = 1
    """What a check of a node takes, as a multiple of a check of a pod without affinity."""
    apart: tuple[str, ...] = ()
    """Words of which members on one node must share none: see `apart`."""
    spread: Spread | None = None

    @property
    def selective(self) -> bool:
        """Whether the pod selects nodes by label or name."""
        return bool(self.labels) or self.terms is not None

    def admits(self, node: NodeState) -> bool:
        """Whether the pod may run on this node, resources apart. No pod may go to a drained node."""
        return not self.hurdle(node)

    def hurdle(self, node: NodeState) -> str:
        """What keeps the pod off this node, resources apart; "" if nothing does."""
        if node.leaving:
            return LEAVING
        if (node.taints or node.unschedulable) and (taint := self._repelling(node)) is not None:
            return UNSCHEDULABLE if taint is CORDONED else f"taint {taint.key}"
        labels = node.labels
        if any(labels.get(key) != value for key, value in self.labels):
            return SELECTOR
        return "" if self.terms is None or any(term.met(node) for term in self.terms) else AFFINITY

    def _repelling(self, node: NodeState) -> Taint | None:
        """A taint of the node that the pod does not tolerate."""
        repelling = [taint for taint in node.taints if taint.effect in REPELLING]
        if node.unschedulable:
            repelling.append(CORDONED)
        return next((taint for taint in repelling if not any(t.covers(taint) for t in self.tolerations)), None)


ANYWHERE = Constraints()


def constraints(pod: Pod) -> Constraints:
    """The constraints of the pod's spec; the same object for equal specs."""
    spec = pod.spec
    labels = tuple(sorted(spec.node_selector.items()))
    key = labels, read(spec.affinity), read(spec.tolerations), apart.words(pod), apart.spread(pod)
    found = _known.get(key)
    if found is None:
        _, affinity, tolerations, words, spread = key
        tolerated = decoded(_toleration_lists, tolerations, _UNREADABLE) if tolerations else None
        terms = _terms(affinity)
        found = _known.put(key, Constraints(labels, terms, tolerated or (), _cost(terms), words, spread))
    return found


def has_preferences(pod: Pod) -> bool:
    """Whether the pod has preferences that only kube-scheduler scores: preferred affinity, soft spread."""
    affinity, spread = bytes(pod.spec.affinity), bytes(pod.spec.topology_spread_constraints)
    return b'"preferredDuringScheduling' in affinity or b'"ScheduleAnyway"' in spread


_Key = tuple[tuple[tuple[str, str], ...], bytes, bytes, tuple[str, ...], Spread | None]


def _length(key: _Key) -> int:
    labels, affinity, tolerations, words, spread = key
    shorter = sum(map(len, chain(chain.from_iterable(labels), words))) + (len(spread.who) if spread else 0)
    return shorter + len(affinity) + len(tolerations)


_known: Remembered[_Key, Constraints] = Remembered(2048, 2**21, _length)


def lacking(amounts: Amounts, allocatable: Mapping[str, int], used: Mapping[str, int]) -> str:
    """The first resource of which too little is left, "" if all amounts fit."""
    for resource, amount in amounts:
        if amount > allocatable.get(resource, 0) - used.get(resource, 0):
            return resource
    return ""


def counted(requests: Iterable[tuple[str, int]], ignored: Collection[str] = ()) -> Amounts:
    """The requests above zero, without the ignored resources."""
    return tuple((resource, amount) for resource, amount in requests if amount > 0 and resource not in ignored)


def short_of(node: NodeState, requests: Amounts, ignored: Collection[str]) -> str:
    """The resource that the node lacks, "" if none. Its books, if it has any, count the `ignored` resources."""
    return lacking(counted(requests, ignored if node.books is not None else ()), node.allocatable, node.used)


def passes(node: NodeState, constraints: Constraints, requests: Amounts, ignored: Collection[str]) -> bool:
    """Whether the node passes kube-scheduler's filters for such a pod, as far as the engine knows them."""
    return constraints.admits(node) and not short_of(node, requests, ignored)


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[Term, ...] = ()


class _NodeAffinity(msgspec.Struct, frozen=True):
    required: _Selector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity | None = None


_affinities = msgspec.json.Decoder(_Affinity | None)
_toleration_lists = msgspec.json.Decoder(tuple[Toleration, ...] | None)
_UNREADABLE = (Toleration(operator="Exists"),)
"""Stands for tolerations that cannot be decoded: it tolerates all taints."""


def _terms(affinity: bytes) -> tuple[Term, ...] | None:
    found = decoded(_affinities, affinity) if affinity else None
    required = found.node_affinity.required if found and found.node_affinity else None
    terms = required.node_selector_terms if required else ()
    few = len(_requirements(terms)) <= REQUIREMENTS.most and _values(terms) <= REQUIRED_VALUES.most
    return terms if required and few else None


def _requirements(terms: Iterable[Term]) -> list[Requirement]:
    return [each for term in terms for each in (*term.match_expressions, *term.match_fields)]


def _values(terms: Iterable[Term]) -> int:
    return sum(len(each.values) for each in _requirements(terms))


def _cost(terms: Sequence[Term] | None) -> int:
    """By measurement: two requirements, or 64 values, take as long as everything else."""
    return 1 + len(_requirements(terms or ())) // 2 + _values(terms or ()) // 64
