"""Which members of a gang kube-scheduler will not let onto one node together, and which it wants spread evenly.

Words that a node holds once each: a port of the node, and required anti-affinity by host name to pods that are like the
pod itself, one worker a node. A spread that must hold (DoNotSchedule), by host name among pods like itself. What stands
on nodes already is left to kube-scheduler, as is what concerns others or zones: what it refuses for these is excluded
from the next plan. But it would refuse members of one gang for each other at every plan that puts too many of them
together. Sources: the filters NodePorts, InterPodAffinity and PodTopologySpread of kube-scheduler.
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
        """Whether it is about pods of this namespace, its own pod's. Labels of namespaces are not known."""
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
    """Pods that must be spread over nodes: which, and by how many one node may have more than another."""

    who: str
    skew: int


_affinities = msgspec.json.Decoder(_Affinity | None)
_spreadings = msgspec.json.Decoder(tuple[_Spreading, ...] | None)


def words(pod: Pod) -> tuple[str, ...]:
    """What two pods must not have in common on one node, sorted."""
    return tuple(sorted({*_ports(pod), *_likes(pod)}))


def spread(pod: Pod) -> Spread | None:
    """The strictest that the pod itself is counted in."""
    meta = pod.metadata
    found = [
        Spread(_named(meta.namespace, each.label_selector), each.max_skew)
        for each in _spread(read(pod.spec.topology_spread_constraints))
        if each.label_selector is not None and each.label_selector.selects(meta.labels)
    ]
    return min(found, key=lambda each: (each.skew, each.who), default=None)


def _ports(pod: Pod) -> list[str]:
    spec = pod.spec
    sidecars = [container for container in spec.init_containers if container.restart_policy == "Always"]
    ports = [port for container in (*spec.containers, *sidecars) for port in container.ports if port.host_port]
    return [f"port {port.protocol} {port.host_port} {_address(port.host_ip)}".rstrip() for port in ports]


def _address(text: str) -> str:
    return "" if text in _ANY_ADDRESS else text


def _likes(pod: Pod) -> list[str]:
    meta = pod.metadata
    found = []
    for term in _terms(read(pod.spec.affinity)):
        selector = term.label_selector
        if selector is not None and term.concerns(meta.namespace) and selector.selects(meta.labels):
            found.append(_named(meta.namespace, selector))
    return found


def _named(namespace: str, selector: Selector) -> str:
    return f"pods of {namespace} {msgspec.json.encode(selector, order='sorted').decode()}"


def read(text: bytes) -> bytes:
    """A part of a pod's spec as JSON; nothing, if it is too long to be read: kube-scheduler has the last word."""
    return bytes(text) if len(text) <= bounds.AFFINITY.most else b""


def decoded(decoder: msgspec.json.Decoder[T], text: bytes) -> T | None:
    """What it says, None if it cannot be decoded."""
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError):
        return None


_known_terms: Remembered[bytes, tuple[_Term, ...]] = Remembered(2048, 2**21, len)
_known_spreads: Remembered[bytes, tuple[_Spreading, ...]] = Remembered(2048, 2**21, len)


def _terms(affinity: bytes) -> tuple[_Term, ...]:
    """Those about host names; text that cannot be decoded keeps nobody apart."""
    if b"podAntiAffinity" not in affinity:
        return ()
    found = _known_terms.get(affinity)
    if found is None:
        said = decoded(_affinities, affinity)
        required = said.pod_anti_affinity.required if said and said.pod_anti_affinity else None
        found = _known_terms.put(affinity, tuple(term for term in required or () if term.topology_key == _HOST))
    return found


def _spread(constraints: bytes) -> tuple[_Spreading, ...]:
    """Those over nodes that must hold; text that cannot be decoded spreads nobody."""
    if not constraints:
        return ()
    found = _known_spreads.get(constraints)
    if found is None:
        on_nodes = (each for each in decoded(_spreadings, constraints) or () if each.topology_key == _HOST)
        strict = (each for each in on_nodes if each.when_unsatisfiable == "DoNotSchedule" and each.max_skew > 0)
        found = _known_spreads.put(constraints, tuple(strict))
    return found
