"""PodDisruptionBudgets: whether an eviction is allowed now."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from extender.sim import podspec
from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import Object
from extender.sim.apiserver.selectors import matches_selector

_UNGUARDED = ("Pending", "Succeeded", "Failed")


def check(pod: Object, budgets: Iterable[Object], pods: Iterable[Object]) -> None:
    """ApiError 429 when evicting ``pod`` would break a budget that selects it, 500 when several do.

    Pods that do not run or are being deleted already may always go, unready ones where the budget's
    unhealthyPodEvictionPolicy lets them.
    """
    if pod["status"].get("phase") in _UNGUARDED or podspec.terminating(pod):
        return
    meant = [budget for budget in budgets if _selects(budget, pod)]
    if len(meant) > 1:
        raise errors.ApiError(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    if meant:
        _check(pod, meant[0], [p for p in pods if not podspec.finished(p) and _selects(meant[0], p)])


def condition() -> Object:
    """What an evicted pod's status says."""
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": podspec.timestamp(),
    }


def _check(pod: Object, budget: Object, chosen: Sequence[Object]) -> None:
    spec, total = budget["spec"], len(chosen)
    healthy = sum(map(_healthy, chosen))
    if "maxUnavailable" in spec:
        wanted = max(0, total - _count(spec["maxUnavailable"], total))
    else:
        wanted = _count(spec.get("minAvailable", 1), total)
    if not _healthy(pod) and (
        spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or (healthy >= wanted and wanted > 0)
    ):
        return
    if healthy <= wanted:
        raise _blocked(budget["metadata"]["name"], wanted, healthy)


def _selects(budget: Object, pod: Object) -> bool:
    """An empty selector means all pods, none at all means no pod."""
    selector = budget["spec"].get("selector")
    return selector is not None and matches_selector(pod["metadata"].get("labels") or {}, selector)


def _count(value: int | str, total: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * total / 100)
    return int(value)


def _healthy(pod: Object) -> bool:
    ready = podspec.condition(pod, "Ready")
    return ready is not None and ready["status"] == "True" and not podspec.terminating(pod)


def _blocked(budget: str, wanted: int, healthy: int) -> errors.ApiError:
    cause = f"The disruption budget {budget} needs {wanted} healthy pods and has {healthy} currently"
    return errors.ApiError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        {"causes": [{"reason": "DisruptionBudget", "message": cause}]},
    )
