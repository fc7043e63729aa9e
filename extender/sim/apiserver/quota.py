"""ResourceQuotas: the use of a namespace's pods, and the refusal of a pod that would exceed a limit."""

from __future__ import annotations

from collections.abc import Iterable

from extender.sim import podspec
from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import PODS, Object


def _counted(pod: Object) -> dict[str, int]:
    requests = podspec.pod_requests(pod)
    return {"pods": 1, "count/pods": 1} | requests | {f"requests.{name}": value for name, value in requests.items()}


def used(quota: Object, pods: Iterable[Object]) -> dict[str, str]:
    """The quota's status.used of the unfinished pods of its namespace."""
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
    """ApiError 403 when ``new`` would exceed the quota."""
    present, counted, hard = used(quota, pods), _counted(new), quota["spec"]["hard"]
    over = sorted(
        name
        for name, limit in hard.items()
        if counted.get(name, 0) and _amount(name, present[name]) + counted[name] > _amount(name, limit)
    )
    if over:
        requested, in_use, limited = (
            ",".join(f"{name}={values[name]}" for name in over)
            for values in ({name: _text(name, counted[name]) for name in over}, present, hard)
        )
        name = quota["metadata"]["name"]
        why = f"exceeded quota: {name}, requested: {requested}, used: {in_use}, limited: {limited}"
        raise errors.forbidden(PODS, new["metadata"]["name"], why)
