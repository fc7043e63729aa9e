"""Which members of a gang kube-scheduler keeps off one node together, or wants spread evenly over nodes.

Each pod has words that a node may hold once: a host port, and required anti-affinity by host name to pods like itself.
A spread counts if it is required (DoNotSchedule), by host name, and selects the pod itself. Without these rules each
plan would put members together that kube-scheduler then refuses. All else is left to kube-scheduler: pods already on
nodes, other pods, zones. A node that it refuses for these is excluded from the next plan. Sources: the filters
NodePorts, InterPodAffinity and PodTopologySpread of kube-scheduler.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from protos.contract import bounds
from protos.contract.objects import Pod
from protos.contract.remembered import Remembered
from protos.contract.selector import Selector

_HOST = "kubernetes.io/hostname"
_ANY_ADDRESS = ("", "0.0.0.0", "::")
T = TypeVar("T")


class _Term(msgspec.Struct, frozen=True, rename="camel"):
    """One PodAffinityTerm."""

    topology_key: str = ""
    label_selector: Selector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: Selector | None = None

    def concerns(self, namespace: str) -> bool:
        """Whether the term selects pods of this namespace, its pod's own. Labels of namespaces are unknown here."""
        if self.namespace_selector is None and not self.namespaces:
            return True
        return namespace in (self.namespaces or ()) or self.namespace_selector == Selector()


class _AntiAffinity(msgspec.Struct, frozen=True):
    required: tuple[_Term, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    pod_anti_affinity: _AntiAffinity | None = None


class _Spreading(msgspec.Struct, frozen=True, rename="camel"):
    """One TopologySpreadConstraint."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: Selector | None = None


class Spread(msgspec.Struct, frozen=True):
    """A required spread over nodes."""

    who: str
    """The pods that are counted."""
    skew: int
    """The most by which the counts of two nodes may differ."""


_affinities = msgspec.json.Decoder(_Affinity | None)
_spreadings = msgspec.json.Decoder(tuple[_Spreading, ...] | None)


def words(pod: Pod) -> tuple[str, ...]:
    """The words of which two pods on one node must share none, sorted."""
    return tuple(sorted({*_ports(pod), *_repelled(pod)}))


def spread(pod: Pod) -> Spread | None:
    """The strictest required spread that counts the pod itself."""
    meta = pod.metadata
    spreads = [
        Spread(_named(meta.namespace, each.label_selector), each.max_skew)
        for each in _spread(read(pod.spec.topology_spread_constraints))
        if each.label_selector is not None and each.label_selector.selects(meta.labels)
    ]
    return min(spreads, key=lambda each: (each.skew, each.who), default=None)


def _ports(pod: Pod) -> list[str]:
    spec = pod.spec
    sidecars = [container for container in spec.init_containers if container.restart_policy == "Always"]
    ports = [port for container in (*spec.containers, *sidecars) for port in container.ports if port.host_port]
    return [f"port {p.protocol} {p.host_port} {'' if p.host_ip in _ANY_ADDRESS else p.host_ip}".rstrip() for p in ports]


def _repelled(pod: Pod) -> list[str]:
    """The pods like itself that the pod repels."""
    meta = pod.metadata
    return [
        _named(meta.namespace, selector)
        for term in _terms(read(pod.spec.affinity))
        if (selector := term.label_selector) and term.concerns(meta.namespace) and selector.selects(meta.labels)
    ]


def _named(namespace: str, selector: Selector) -> str:
    return f"pods of {namespace} {msgspec.json.encode(selector, order='sorted').decode()}"


def read(text: bytes) -> bytes:
    """A part of a pod's spec as JSON; empty if it is too long to read here, as kube-scheduler has the last word."""
    return bytes(text) if len(text) <= bounds.AFFINITY.most else b""


def decoded(decoder: msgspec.json.Decoder[T], text: bytes, otherwise: T | None = None) -> T | None:
    """The decoded text, `otherwise` if it cannot be decoded."""
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError):
        return otherwise


_known_terms: Remembered[bytes, tuple[_Term, ...]] = Remembered(2048, 2**21, len)
_known_spreads: Remembered[bytes, tuple[_Spreading, ...]] = Remembered(2048, 2**21, len)


def _terms(affinity: bytes) -> tuple[_Term, ...]:
    """The required anti-affinity terms by host name; none if the text cannot be decoded."""
    if b"podAntiAffinity" not in affinity:
        return ()
    found = _known_terms.get(affinity)
    if found is None:
        spec = decoded(_affinities, affinity)
        required = spec.pod_anti_affinity.required if spec and spec.pod_anti_affinity else None
        found = _known_terms.put(affinity, tuple(term for term in required or () if term.topology_key == _HOST))
    return found


def _spread(constraints: bytes) -> tuple[_Spreading, ...]:
    """The required spreads by host name; none if the text cannot be decoded."""
    if not constraints:
        return ()
    found = _known_spreads.get(constraints)
    if found is None:
        on_nodes = (each for each in decoded(_spreadings, constraints) or () if each.topology_key == _HOST)
        strict = (each for each in on_nodes if each.when_unsatisfiable == "DoNotSchedule" and each.max_skew > 0)
        found = _known_spreads.put(constraints, tuple(strict))
    return found
