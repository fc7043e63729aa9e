"""Which container an Allocate is for. Pure.

The kubelet's request names no pod, but it admits pods one at a time, and its PodResources List, asked from inside
Allocate, shows the pod under admission with no devices yet of this resource. Joined with the pods of the API server
and with the record of what was answered, one container is left. Nothing is matched by amount alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from deviceplugin.record import Record
from protos.contract.objects import Container, Pod
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

    `pods` are those of this node as last seen; None for a name that the API server says it does not have.
    """
    fresh: dict[tuple[str, str], Candidate] = {}
    again: dict[tuple[str, str], Candidate] = {}
    unknown: dict[Name, None] = {}
    for entry in listed:
        pod = pods.get(entry.name)
        if pod is None or not live(pod):
            if not entry.any(resource) and not (pod is None and entry.name in pods):
                unknown[entry.name] = None
            continue
        uid = pod.metadata.uid
        wanting = [c.name for kind, c in containers(pod) if amount_of(c, resource)]
        waiting = [c for c in wanting if not record.answered(uid, c, resource) and not entry.shows(c, resource)]
        if wanting and not waiting and not entry.any(resource):
            unknown[entry.name] = None
        if waiting and not record.refused(uid):
            if _asks(pod, waiting[0], resource, amount):
                fresh[uid, waiting[0]] = Candidate(pod, waiting[0])
            continue
        for name in wanting:
            if name in entry.devices and not entry.shows(name, resource) and _asks(pod, name, resource, amount):
                again.setdefault((uid, name), Candidate(pod, name))
    return Candidates(tuple((fresh or again).values()), tuple(unknown))


def live(pod: Pod) -> bool:
    """Whether the kubelet may be admitting this pod. A mirror pod has another UID than the kubelet knows it by."""
    return (
        pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ("Succeeded", "Failed")
        and MIRROR not in pod.metadata.annotations
    )


def containers(pod: Pod) -> Iterator[tuple[str, Container]]:
    """A pod's containers in the order in which the kubelet allocates: init containers and sidecars, then the others."""
    for container in pod.spec.init_containers:
        yield "init", container
    for container in pod.spec.containers:
        yield "app", container


def amount_of(container: Container, resource: str) -> int:
    """How much of a resource the container's limits ask."""
    try:
        return integer(container.resources.limits.get(resource, 0)) if container.resources else 0
    except QuantityError:
        return 0


def _asks(pod: Pod, container: str, resource: str, amount: int) -> bool:
    return any(c.name == container and amount_of(c, resource) == amount for _, c in containers(pod))
