"""Which container an Allocate is for. Pure.

The kubelet's request names no pod, but it admits pods one at a time, and its PodResources List, asked from inside
Allocate, shows the pod under admission with no devices yet of this resource. Joined with the pods of the API server
and with the record of what was answered, one container is left. Nothing is matched by amount alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from deviceplugin.record import Record
from protos.contract.objects import ENDED, Container, Pod
from protos.contract.quantity import QuantityError, integer

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the API server's shadow of a static pod."""
Name = tuple[str, str]
"""Namespace and name of a pod."""


class Listed(NamedTuple):
    """A pod as PodResources List shows it: device IDs by container and resource, ordinary init containers left out."""

    name: Name
    devices: Mapping[str, Mapping[str, frozenset[str]]]

    def shows(self, container: str, resource: str) -> bool:
        return bool(self.devices.get(container, {}).get(resource))

    def any(self, resource: str) -> bool:
        return any(resource in devices for devices in self.devices.values())


class Candidate(NamedTuple):
    """A container that the Allocate may be for."""

    pod: Pod
    container: str


class Candidates(NamedTuple):
    """All candidates, and the pods that must be read from the API server before one of them can be believed."""

    found: tuple[Candidate, ...]
    unknown: tuple[Name, ...]


def candidates(
    resource: str, amount: int, listed: Sequence[Listed], pods: Mapping[Name, Pod | None], record: Record
) -> Candidates:
    """Who may be asking `amount` of `resource`.

    `pods` are those of this node as last seen; None for a name that the API server says it does not have. A pod that
    was deleted, has ended or was answered may have been replaced by another of its name; ended ones, of which kubelets
    before 1.34 list all, are read only where nobody else is asking.
    """
    fresh: dict[tuple[str, str], Candidate] = {}
    again: dict[tuple[str, str], Candidate] = {}
    unknown: dict[Name, None] = {}
    ended: dict[Name, None] = {}
    for entry in listed:
        pod = pods.get(entry.name)
        if pod is None:
            if entry.name not in pods and not entry.any(resource):
                unknown[entry.name] = None
            continue
        uid = pod.metadata.uid
        wanting = [c.name for c in _containers(pod) if amount_of(c, resource)]
        if not wanting:
            continue
        if not live(pod) or record.refused(uid):
            if not entry.any(resource):
                (unknown if pod.metadata.deletion_timestamp else ended)[entry.name] = None
            continue
        answered = {c for c in wanting if entry.shows(c, resource) or record.answered(uid, c, resource)}
        asking = [c for c in wanting if _empty(entry, c, resource, answered)]
        if len(answered) < len(wanting):
            if _asks(pod, asking[0], resource, amount):
                fresh[uid, asking[0]] = Candidate(pod, asking[0])
            continue
        if not entry.any(resource):
            unknown[entry.name] = None
        for name in asking:
            if _asks(pod, name, resource, amount):
                again.setdefault((uid, name), Candidate(pod, name))
    if not fresh:
        unknown |= ended
    return Candidates(tuple((fresh or again).values()), tuple(unknown))


def _empty(entry: Listed, container: str, resource: str, answered: Collection[str]) -> bool:
    """Whether the kubelet has no devices for this container: by its List, which hides init containers, or our word."""
    return not entry.shows(container, resource) if container in entry.devices else container not in answered


def live(pod: Pod) -> bool:
    """Whether the kubelet may be admitting this pod. A mirror pod has another UID than the kubelet knows it by."""
    return (
        pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ENDED
        and MIRROR not in pod.metadata.annotations
    )


def _containers(pod: Pod) -> tuple[Container, ...]:
    """A pod's containers in the order in which the kubelet allocates: init containers and sidecars, then the others."""
    return *pod.spec.init_containers, *pod.spec.containers


def amount_of(container: Container, resource: str) -> int:
    """How much of a resource the container's limits ask."""
    try:
        return integer(container.resources.limits.get(resource, 0)) if container.resources else 0
    except QuantityError:
        return 0


def _asks(pod: Pod, container: str, resource: str, amount: int) -> bool:
    return any(c.name == container and amount_of(c, resource) == amount for c in _containers(pod))
