"""Which container an Allocate is for. Pure.

The kubelet's request names no pod. But the kubelet admits pods one at a time, and its PodResources List, asked from
inside Allocate, shows the pod under admission without devices of this resource. Joined with the pods of the API server
and the record of answers, one container remains. No container is matched by amount alone.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from deviceplugin.record import Record
from protos.contract.objects import ENDED, Container, Pod
from protos.contract.quantity import integer_or_zero

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of a static pod's mirror pod."""
Name = tuple[str, str]
"""Namespace and name of a pod."""


class Listed(NamedTuple):
    """A pod in a PodResources List: device IDs by container and resource, without ordinary init containers."""

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
    """All candidates, and the pods to read from the API server before a candidate is certain."""

    found: tuple[Candidate, ...]
    unknown: tuple[Name, ...]


def candidates(
    resource: str, amount: int, listed: Sequence[Listed], pods: Mapping[Name, Pod | None], record: Record
) -> Candidates:
    """The containers that may be asking for `amount` of `resource`.

    `pods` are the pods of this node as last seen, None for a pod that the API server does not have. A pod that was
    deleted, has ended or was answered may have been replaced by another pod of its name. Kubelets before 1.34 list all
    ended pods, so these are read only if no other container may be asking. A pod with containers was admitted: it asks
    only if its status is of a kubelet before, so it counts only where no pod without containers may be asking.
    """
    fresh: dict[tuple[str, str], Candidate] = {}
    started: dict[tuple[str, str], Candidate] = {}
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
        wanting = {c.name: n for c in _containers(pod) if (n := _amount(c, resource))}
        if not wanting:
            continue
        if not _live(pod) or record.refused(uid):
            if not entry.any(resource):
                (unknown if pod.metadata.deletion_timestamp else ended)[entry.name] = None
            continue
        answered = {c for c in wanting if entry.shows(c, resource) or record.answered(uid, c, resource)}
        # The kubelet's List shows whether a container has devices, and hides init containers: there our record counts.
        shown = entry.devices
        asking = [c for c in wanting if not (entry.shows(c, resource) if c in shown else c in answered)]
        if len(answered) < len(wanting):
            if wanting[asking[0]] == amount:
                (started if has_containers(pod) else fresh)[uid, asking[0]] = Candidate(pod, asking[0])
            continue
        if not entry.any(resource):
            unknown[entry.name] = None
        for name in asking:
            if wanting[name] == amount:
                again.setdefault((uid, name), Candidate(pod, name))
    if not fresh:
        unknown |= ended
    return Candidates(tuple((fresh or started | again).values()), tuple(unknown))


def _live(pod: Pod) -> bool:
    """Whether the kubelet may be admitting this pod. The kubelet knows a mirror pod by another UID."""
    return (
        pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ENDED
        and MIRROR not in pod.metadata.annotations
    )


def _containers(pod: Pod) -> tuple[Container, ...]:
    """A pod's containers in the kubelet's order of allocation: init containers and sidecars, then the others."""
    return *pod.spec.init_containers, *pod.spec.containers


def has_containers(pod: Pod) -> bool:
    """Whether a kubelet has made a container of the pod, so it had admitted the pod."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return any(status.container_id or status.state.running for status in statuses)


def _amount(container: Container, resource: str) -> int:
    """The container's limit of a resource."""
    return integer_or_zero(container.resources.limits.get(resource, 0)) if container.resources else 0
