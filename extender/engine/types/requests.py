"""What a pod takes of its node in-tree, as kube-scheduler counts it.

cpu is in thousandths of a core, everything else in whole units; what cannot be read counts as none. Containers whose
resources are changed in place take the most of what is asked, allocated and in use; of a resize that can never be, what
is asked does not count. Source: KEP-753, KEP-1287, KEP-2837; k8s.io/component-helpers/resource PodRequests with
UseStatusResources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from protos.contract.objects import Container, ContainerStatus, Pod
from protos.contract.quantity import QuantityError, milli, units

KNOWN, SHORT = 4096, 32
"""Quantities of which it is remembered what they mean, and characters of the longest: pods come from few templates."""
Resized = Mapping[str, tuple[ContainerStatus, bool]]
PENDING, INFEASIBLE = "PodResizePending", "Infeasible"
"""A pod's condition, and its reason when the node can never give so much."""


def amounts(quantities: Mapping[str, str | int]) -> dict[str, int]:
    """Quantities of the API as whole numbers."""
    return {resource: _amount(resource == "cpu", quantity) for resource, quantity in quantities.items()}


def _amount(cores: bool, quantity: str | int) -> int:
    if isinstance(quantity, str) and len(quantity) > SHORT:
        return _read(cores, quantity)
    return _known(cores, quantity)


def _read(cores: bool, quantity: str | int) -> int:
    try:
        return milli(quantity) if cores else units(quantity)
    except QuantityError:
        return 0


_known = lru_cache(KNOWN)(_read)


def requests(pod: Pod) -> list[tuple[str, int]]:
    """What the pod takes, and one pod slot, by name."""
    spec, resized = pod.spec, _resized(pod)
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _asked(container, resized))
    if spec.init_containers:
        total = _with_init(total, spec.init_containers, resized)
    if spec.resources is not None:
        total |= amounts({**spec.resources.limits, **spec.resources.requests})
    if spec.overhead:
        _add(total, amounts(spec.overhead))
    total["pods"] = 1
    return sorted(total.items())


def _with_init(apps: dict[str, int], init: Iterable[Container], resized: Resized) -> dict[str, int]:
    """The most that is taken at a time: by an init container beside the sidecars before it, or by all that stay."""
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in init:
        stays = container.restart_policy == "Always"
        now = dict(sidecars)
        _add(now, _asked(container, resized if stays else {}))
        peak = _most(peak, now)
        if stays:
            sidecars = now
    _add(apps, sidecars)
    return _most(apps, peak)


def _resized(pod: Pod) -> Resized:
    """The containers of which the kubelet says what they have, by name, and whether what is asked counts too."""
    status = pod.status
    told = [each for each in status.container_statuses if each.resources is not None]
    told += [each for each in status.init_container_statuses if each.resources is not None]
    if not told:
        return {}
    pending = next((found for found in status.conditions if found.type == PENDING), None)
    feasible = pending is None or pending.reason != INFEASIBLE
    return {each.name: (each, feasible) for each in told}


def _asked(container: Container, resized: Resized) -> dict[str, int]:
    own, known = container.resources, resized.get(container.name)
    asked = amounts({**own.limits, **own.requests}) if own is not None else {}
    if known is None:
        return asked
    status, feasible = known
    used = status.resources.requests if status.resources is not None else {}
    if own is not None and used == own.requests == status.allocated_resources:
        return asked
    held = _most(amounts(used), amounts(status.allocated_resources))
    return _most(asked, held) if feasible else held


def _most(some: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {key: max(some.get(key, 0), others.get(key, 0)) for key in {**some, **others}}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for key, amount in more.items():
        total[key] = total.get(key, 0) + amount
