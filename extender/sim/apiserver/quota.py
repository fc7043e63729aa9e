"""ResourceQuota on pods: what is counted, and the refusal when a limit would be passed."""

from __future__ import annotations

from collections.abc import Iterable

from extender.sim import podspec
from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import PODS, Object


def _counted(pod: Object) -> dict[str, int]:
    asked = podspec.pod_requests(pod)
    return {"pods": 1, "count/pods": 1} | asked | {f"requests.{name}": value for name, value in asked.items()}


def used(quota: Object, pods: Iterable[Object]) -> dict[str, str]:
    """The quota's status.used over the pods of its namespace that have not finished."""
    total = dict.fromkeys(quota["spec"]["hard"], 0)
    for pod in pods:
        if not podspec.finished(pod):
            counted = _counted(pod)
            for name in total:
                total[name] += counted.get(name, 0)
    return {name: _text(name, value) for name, value in total.items()}


def _text(name: str, value: int) -> str:
    return f"{value}m" if name.endswith("cpu") and value % 1000 else str(value // (1000 if name.endswith("cpu") else 1))


def _amount(name: str, text: str) -> int:
    return podspec.amount("cpu" if name.endswith("cpu") else name, text)


def check(quota: Object, pods: Iterable[Object], new: Object) -> None:
    """ApiError 403 when ``new`` would take the namespace past the quota."""
    present, counted, hard = used(quota, pods), _counted(new), quota["spec"]["hard"]
    over = sorted(
        name
        for name, limit in hard.items()
        if counted.get(name, 0) and _amount(name, present[name]) + counted[name] > _amount(name, limit)
    )
    if over:
        told = [
            ",".join(f"{n}={values[n]}" for n in over)
            for values in ({n: _text(n, counted[n]) for n in over}, present, hard)
        ]
        why = f"exceeded quota: {quota['metadata']['name']}, requested: {told[0]}, used: {told[1]}, limited: {told[2]}"
        raise errors.forbidden(PODS, new["metadata"]["name"], why)
