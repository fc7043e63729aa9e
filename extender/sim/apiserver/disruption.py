"""PodDisruptionBudgets: whether an eviction is allowed now."""

from __future__ import annotations

import math
from collections.abc import Iterable

from extender.sim import podspec
from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import Object
from extender.sim.apiserver.selectors import matches_selector


def _count(value: int | str, total: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * total / 100)
    return int(value)


def _healthy(pod: Object) -> bool:
    ready = podspec.condition(pod, "Ready")
    return ready is not None and ready["status"] == "True" and not podspec.terminating(pod)


def check(pod: Object, budgets: Iterable[Object], pods: Iterable[Object]) -> None:
    """ApiError 429 when evicting ``pod`` would break a budget that selects it; pods not yet running always may go."""
    if pod["status"].get("phase") != "Running":
        return
    siblings = [p for p in pods if not podspec.finished(p)]
    labels = pod["metadata"].get("labels") or {}
    for budget in budgets:
        spec = budget["spec"]
        if not matches_selector(labels, spec.get("selector") or {}):
            continue
        chosen = [p for p in siblings if matches_selector(p["metadata"].get("labels") or {}, spec["selector"])]
        healthy = sum(map(_healthy, chosen))
        if "maxUnavailable" in spec:
            wanted = len(chosen) - _count(spec["maxUnavailable"], len(chosen))
        else:
            wanted = _count(spec.get("minAvailable", 1), len(chosen))
        if _healthy(pod) and healthy <= wanted:
            raise _blocked(budget["metadata"]["name"], wanted, healthy)


def _blocked(budget: str, wanted: int, healthy: int) -> errors.ApiError:
    cause = f"The disruption budget {budget} needs {wanted} healthy pods and has {healthy} currently"
    return errors.ApiError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        {"causes": [{"reason": "DisruptionBudget", "message": cause}]},
    )
