"""Reads pods as scheduler, kubelet and quota do: quantities, requests, containers in order, states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from protos.contract.quantity import milli, units

Object = dict[str, Any]
Amounts = dict[str, int]  # resource name → whole units; cpu in thousandths


def amount(resource: str, text: str | int) -> int:
    """A quantity as kube-scheduler counts it: rounded up, cpu in thousandths."""
    return milli(text) if resource == "cpu" else units(text)


def amounts(quantities: Mapping[str, str | int] | None) -> Amounts:
    """A ResourceList in whole units."""
    return {resource: amount(resource, text) for resource, text in (quantities or {}).items()}


def requests(container: Object) -> Amounts:
    """A container's requests; a missing request defaults to the limit."""
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def limits(container: Object) -> Amounts:
    """A container's limits."""
    return amounts((container.get("resources") or {}).get("limits"))


def is_sidecar(container: Object) -> bool:
    """Whether an init container is a sidecar: it keeps running beside the app containers."""
    return container.get("restartPolicy") == "Always"


def containers(pod: Object) -> Iterator[tuple[Object, bool]]:
    """All containers in the order the kubelet admits them, with whether it is an init container."""
    for container in pod["spec"].get("initContainers") or ():
        yield container, True
    for container in pod["spec"]["containers"]:
        yield container, False


def pod_requests(pod: Object) -> Amounts:
    """A pod's requests: max(init, app + sidecars) per resource, plus overhead (KEP-753)."""
    running: Amounts = {}
    peak: Amounts = {}
    for container, init in containers(pod):
        asked = requests(container)
        if init and not is_sidecar(container):
            _raise_to(peak, _sum(running, asked))
        else:
            running = _sum(running, asked)
    _raise_to(peak, running)
    return _sum(peak, amounts(pod["spec"].get("overhead")))


def host_ports(pod: Object) -> frozenset[tuple[str, int]]:
    """Protocol and number of the host ports that a pod needs."""
    found = (port for container, _ in containers(pod) for port in container.get("ports") or ())
    return frozenset((p.get("protocol", "TCP"), p["hostPort"]) for p in found if p.get("hostPort"))


def _sum(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, 0) + right.get(name, 0) for name in [*left, *(n for n in right if n not in left)]}


def _raise_to(peak: Amounts, other: Amounts) -> None:
    for name, value in other.items():
        peak[name] = max(peak.get(name, 0), value)


def key(pod: Object) -> tuple[str, str]:
    """Namespace and name."""
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def uid(pod: Object) -> str:
    """The pod's UID."""
    return str(pod["metadata"]["uid"])


def node_of(pod: Object) -> str:
    """The node that a pod is bound to, or the empty string."""
    return str(pod["spec"].get("nodeName", ""))


def finished(pod: Object) -> bool:
    """Whether the pod has ended for good."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def terminating(pod: Object) -> bool:
    """Whether the pod is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def condition(obj: Object, kind: str) -> Object | None:
    """The status condition of that type."""
    found = obj.get("status", {}).get("conditions") or ()
    return next((c for c in found if c["type"] == kind), None)


def turned(pod: Object, kind: str, status: str, reason: str = "", message: str = "") -> Object:
    """The new condition of the pod; its transition time changes only with its status."""
    old = condition(pod, kind)
    since = old["lastTransitionTime"] if old and old["status"] == status else timestamp()
    found = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
    return {**found, "reason": reason, "message": message} if reason else found


def timestamp(seconds: float | None = None) -> str:
    """The given time, or now, in the format of metav1.Time (whole seconds, UTC)."""
    when = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp() -> str:
    """Now, in the format of metav1.MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
