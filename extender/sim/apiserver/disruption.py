"""PodDisruptionBudgets: whether an eviction is allowed now."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from extender.sim import podspec
from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import Object
from protos.contract.budget import Spec

_UNGUARDED = ("Pending", "Succeeded", "Failed")


def check(pod: Object, budgets: Iterable[Object], pods: Iterable[Object]) -> None:
    """Raise ApiError 429 if the eviction would break the pod's budget, 500 if several budgets select the pod.

    Pods that do not run or are being deleted may always be evicted. Unready pods may be evicted if the budget's
    unhealthyPodEvictionPolicy allows it.
    """
    if pod["status"].get("phase") in _UNGUARDED or podspec.terminating(pod):
        return
    guarding = [budget for budget in budgets if _selects(budget, pod)]
    if len(guarding) > 1:
        raise errors.ApiError(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    if guarding:
        _check(pod, guarding[0], [p for p in pods if not podspec.finished(p) and _selects(guarding[0], p)])


def _check(pod: Object, budget: Object, guarded: Sequence[Object]) -> None:
    spec, total = budget["spec"], len(guarded)
    healthy = sum(map(_healthy, guarded))
    if "maxUnavailable" in spec:
        wanted = max(0, total - _count(spec["maxUnavailable"], total))
    else:
        wanted = _count(spec.get("minAvailable", 1), total)
    if not _healthy(pod) and (
        spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or (healthy >= wanted and wanted > 0)
    ):
        return
    if healthy <= wanted:
        name = budget["metadata"]["name"]
        cause = f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
        raise errors.ApiError(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
            {"causes": [{"reason": "DisruptionBudget", "message": cause}]},
        )


def _selects(budget: Object, pod: Object) -> bool:
    """An empty selector selects all pods, a missing one no pod."""
    selector = msgspec.convert(budget["spec"], Spec).selector
    return selector is not None and selector.selects(pod["metadata"].get("labels") or {})


def _count(value: int | str, total: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * total / 100)
    return int(value)


def _healthy(pod: Object) -> bool:
    ready = podspec.condition(pod, "Ready")
    return ready is not None and ready["status"] == "True" and not podspec.terminating(pod)
