"""The columns of `kubectl get`: kube-apiserver's for the kinds that it knows, and those of CustomResourceDefinitions.

Each cell is a function of the object. Source: pkg/printers/internalversion, and additionalPrinterColumns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from extender.sim import podspec
from extender.sim.apiserver.resources import EVENTS, JOBS, NAMESPACES, NODES, PODS, Object, Resource

NONE, UNKNOWN = "<none>", "<unknown>"
_ROLE = "node-role.kubernetes.io/"
_STEP = re.compile(r"""\.((?:[^.\[\]\\]|\\.)+)|\[\?\(@\.(\w+)==(["'])(.*?)\3\)\]""")


class Column(NamedTuple):
    """One column, with the cell of each object."""

    name: str
    cell: Callable[[Object], Any]
    type: str = "string"
    wide: bool = False
    """Shown by `-o wide` only."""


def columns(resource: Resource) -> list[Column]:
    """The columns of a resource."""
    if resource.custom:
        return [_NAME, *(_custom(column) for column in resource.columns)] if resource.columns else [_NAME, _AGE]
    return list(_BUILT_IN.get(resource.plural, (_NAME, _AGE)))


def steps(path: str) -> list[tuple[str, str, str]] | None:
    """The steps of a JSONPath: a field, or the entry of a list whose field has this value. None if it has others."""
    found = [(m[1].replace("\\", "") if m[1] else "", m[2] or "", m[4] or "") for m in _STEP.finditer(path)]
    return found if path and not _STEP.sub("", path) else None


def age(timestamp: object) -> str:
    """The time since then, as kubectl prints it."""
    try:
        then = datetime.fromisoformat(str(timestamp))
        seconds = max(0, int((datetime.now(UTC) - then).total_seconds()))
    except (TypeError, ValueError):
        return UNKNOWN
    return duration(seconds)


def duration(seconds: int) -> str:
    """The duration, as kubectl prints it. Source: HumanDuration of k8s.io/apimachinery."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if minutes < 2:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{seconds % 60}s" if seconds % 60 else "")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if days < 2:
        return f"{hours}h"
    return f"{days}d" + (f"{hours % 24}h" if days < 8 and hours % 24 else "")


def _custom(column: Object) -> Column:
    path, kind = steps(column["jsonPath"]) or [], column["type"]

    def cell(obj: Object) -> Any:
        value = _at(obj, path)
        if value is None:
            return None
        return age(value) if kind == "date" else str(value) if kind == "string" else value

    return Column(column["name"], cell, kind, column.get("priority", 0) > 0)


def _at(value: Any, path: Sequence[tuple[str, str, str]]) -> Any:
    for name, field, wanted in path:
        if name:
            value = value.get(name) if isinstance(value, dict) else None
        else:
            entries = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
            value = next((each for each in entries if each.get(field) == wanted), None)
    return value


def _ready(pod: Object) -> str:
    statuses = pod["status"].get("containerStatuses") or ()
    return f"{sum(bool(each.get('ready')) for each in statuses)}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Object) -> str:
    if podspec.terminating(pod):
        return "Terminating"
    scheduled = podspec.condition(pod, "PodScheduled")
    if scheduled and scheduled.get("reason") == "SchedulingGated":
        return "SchedulingGated"
    return next(_init_states(pod), "") or next(_states(pod), "") or _phase(pod)


def _phase(pod: Object) -> str:
    return str(pod["status"].get("reason") or pod["status"].get("phase") or UNKNOWN)


def _init_states(pod: Object) -> Iterator[str]:
    """What the first init container that has not succeeded does."""
    specs = pod["spec"].get("initContainers") or ()
    for number, (spec, status) in enumerate(zip(specs, pod["status"].get("initContainerStatuses") or (), strict=False)):
        ended = status.get("state", {}).get("terminated")
        if ended and ended.get("exitCode"):
            yield f"Init:{ended.get('reason', 'Error')}"
        elif not ended and not (podspec.is_sidecar(spec) and status.get("started")):
            yield f"Init:{number}/{len(specs)}"


def _states(pod: Object) -> Iterator[str]:
    """Why containers do not run; nothing while one runs beside others that have completed."""
    states = [status.get("state", {}) for status in pod["status"].get("containerStatuses") or ()]
    reasons = [str(each["reason"]) for state in states for each in state.values() if "reason" in each]
    if not any("running" in state for state in states) or set(reasons) != {"Completed"}:
        yield from reasons


def _restarts(pod: Object) -> str:
    return str(sum(status.get("restartCount", 0) for status in pod["status"].get("containerStatuses") or ()))


def _node_status(node: Object) -> str:
    ready = podspec.condition(node, "Ready")
    state = "Unknown" if ready is None else "Ready" if ready["status"] == "True" else "NotReady"
    return state + (",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else "")


def _roles(node: Object) -> str:
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))) or NONE


def _internal_ip(node: Object) -> str:
    addresses = node.get("status", {}).get("addresses") or ()
    return next((str(each["address"]) for each in addresses if each["type"] == "InternalIP"), NONE)


def _job_status(job: Object) -> str:
    ended = [kind for kind in ("Complete", "Failed") if podspec.condition(job, kind)]
    return ended[0] if ended else "Suspended" if job["spec"].get("suspend") else "Running"


def _completions(job: Object) -> str:
    return f"{job.get('status', {}).get('succeeded', 0)}/{job['spec'].get('completions', 1)}"


def _about(event: Object) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


_NAME = Column("Name", lambda obj: obj["metadata"]["name"])
_AGE = Column("Age", lambda obj: age(obj["metadata"].get("creationTimestamp")))
_BUILT_IN: Mapping[str, Sequence[Column]] = {
    PODS.plural: (
        _NAME,
        Column("Ready", _ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts),
        _AGE,
        Column("IP", lambda pod: pod["status"].get("podIP") or NONE, wide=True),
        Column("Node", lambda pod: podspec.node_of(pod) or NONE, wide=True),
        Column("Nominated Node", lambda pod: pod["status"].get("nominatedNodeName") or NONE, wide=True),
    ),
    NODES.plural: (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _roles),
        _AGE,
        Column("Version", lambda node: node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", "")),
        Column("Internal-IP", _internal_ip, wide=True),
    ),
    NAMESPACES.plural: (_NAME, Column("Status", lambda namespace: namespace["status"]["phase"]), _AGE),
    JOBS.plural: (_NAME, Column("Status", _job_status), Column("Completions", _completions), _AGE),
    EVENTS.plural: (
        Column("Last Seen", lambda event: age(event.get("lastTimestamp"))),
        Column("Type", lambda event: event.get("type", "")),
        Column("Reason", lambda event: event.get("reason", "")),
        Column("Object", _about),
        Column("Message", lambda event: event.get("message", "").strip()),
        _NAME._replace(wide=True),
    ),
}
