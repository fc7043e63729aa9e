"""The in-tree requests of a pod, as kube-scheduler counts them.

cpu is in thousandths of a core, other resources in whole units; an unreadable quantity counts as zero. A container that
is resized in place counts with the largest of its desired, allocated and actual resources; an infeasible resize with
the larger of the last two. Source: KEP-753, KEP-1287, KEP-2837; k8s.io/component-helpers/resource PodRequests with
UseStatusResources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from protos.contract.objects import Container, ContainerStatus, Pod
from protos.contract.quantity import QuantityError, milli, units

KNOWN, SHORT = 4096, 32
"""Quantities cached, and characters of the longest that is: pods come from few templates."""
Resized = Mapping[str, tuple[ContainerStatus, bool]]
"""The status of resizable containers by name, and whether their desired resources count."""
PENDING, INFEASIBLE = "PodResizePending", "Infeasible"
"""The condition of a pending resize, and its reason if the node is too small for it."""


def amounts(quantities: Mapping[str, str | int]) -> dict[str, int]:
    """Quantities as integers; cpu in thousandths of a core."""
    return {resource: _amount(resource == "cpu", quantity) for resource, quantity in quantities.items()}


def _amount(cores: bool, quantity: str | int) -> int:
    is_long = isinstance(quantity, str) and len(quantity) > SHORT
    return _read(cores, quantity) if is_long else _known(cores, quantity)


def _read(cores: bool, quantity: str | int) -> int:
    try:
        return milli(quantity) if cores else units(quantity)
    except QuantityError:
        return 0


_known = lru_cache(KNOWN)(_read)


def requests(pod: Pod) -> list[tuple[str, int]]:
    """The pod's requests by resource, sorted, with one slot of `pods`."""
    spec, resized = pod.spec, _resized(pod)
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _container(container, resized))
    if spec.init_containers:
        total = _with_init(total, spec.init_containers, resized)
    if spec.resources is not None:
        total |= amounts({**spec.resources.limits, **spec.resources.requests})
    if spec.overhead:
        _add(total, amounts(spec.overhead))
    total["pods"] = 1
    return sorted(total.items())


def _with_init(apps: dict[str, int], init: Iterable[Container], resized: Resized) -> dict[str, int]:
    """The peak: an init container beside the sidecars started before it, or all app containers and sidecars."""
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in init:
        is_sidecar = container.restart_policy == "Always"
        now = dict(sidecars)
        _add(now, _container(container, resized if is_sidecar else {}))
        peak = _most(peak, now)
        if is_sidecar:
            sidecars = now
    _add(apps, sidecars)
    return _most(apps, peak)


def _resized(pod: Pod) -> Resized:
    status = pod.status
    statuses = [each for each in status.container_statuses if each.resources is not None]
    statuses += [each for each in status.init_container_statuses if each.resources is not None]
    if not statuses:
        return {}
    infeasible = any(each.type == PENDING and each.reason == INFEASIBLE for each in status.conditions)
    return {each.name: (each, not infeasible) for each in statuses}


def _container(container: Container, resized: Resized) -> dict[str, int]:
    spec, known = container.resources, resized.get(container.name)
    desired = amounts({**spec.limits, **spec.requests}) if spec is not None else {}
    if known is None:
        return desired
    status, feasible = known
    actual = status.resources.requests if status.resources is not None else {}
    if spec is not None and actual == spec.requests == status.allocated_resources:
        return desired
    held = _most(amounts(actual), amounts(status.allocated_resources))
    return _most(desired, held) if feasible else held


def _most(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {key: max(left.get(key, 0), right.get(key, 0)) for key in {**left, **right}}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for key, amount in more.items():
        total[key] = total.get(key, 0) + amount
