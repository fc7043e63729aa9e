"""The kubelet's own fit check at admission. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from extender.sim import podspec
from extender.sim.podspec import Object


def misfit(pod: Object, others: Iterable[Object], allocatable: Mapping[str, int]) -> tuple[str, str] | None:
    """Reason and message when the node cannot take the pod beside the ``others``; extended resources that the node
    does not offer are not looked at."""
    asked = podspec.pod_requests(pod)
    used: dict[str, int] = {}
    count = 0
    for other in others:
        count += 1
        for resource, amount in podspec.pod_requests(other).items():
            used[resource] = used.get(resource, 0) + amount
    if count + 1 > allocatable["pods"]:
        return _told("pods", 1, count, allocatable["pods"])
    for resource, amount in asked.items():
        if amount and resource in allocatable and used.get(resource, 0) + amount > allocatable[resource]:
            return _told(resource, amount, used.get(resource, 0), allocatable[resource])
    return None


def _told(resource: str, asked: int, used: int, capacity: int) -> tuple[str, str]:
    message = f"Node didn't have enough resource: {resource}, requested: {asked}, used: {used}, capacity: {capacity}"
    return f"OutOf{resource}", message
