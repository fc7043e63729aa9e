"""Pods in the API server: defaults, validation, binding, graceful deletion. Pure but for the clock."""

from __future__ import annotations

import time

from extender.sim import podspec
from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import PODS, Object
from protos.contract import quantity

_MUTABLE_SPEC = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds")
_NATIVE = ("cpu", "memory", "ephemeral-storage")


def prepare(pod: Object) -> Object:
    """The new pod with defaults and a fresh status; raises ApiError 422 if it is invalid."""
    name = pod["metadata"]["name"]
    spec = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        **(pod.get("spec") or {}),
    }
    if not spec.get("containers"):
        raise errors.invalid(PODS, name, "spec.containers", "Required value")
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [_container(name, f"spec.{field}[{i}]", c) for i, c in enumerate(spec[field])]
    status: Object = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        if spec.get("nodeName"):
            raise errors.invalid(
                PODS, name, "spec.nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared"
            )
        gated = "Scheduling is blocked due to non-empty scheduling gates"
        status["conditions"] = [podspec.turned({}, "PodScheduled", "False", "SchedulingGated", gated)]
    return {**pod, "spec": spec, "status": status}


def _container(pod: str, field: str, container: Object) -> Object:
    if "name" not in container:
        raise errors.invalid(PODS, pod, f"{field}.name", "Required value")
    resources = container.get("resources") or {}
    asked, limited = dict(resources.get("requests") or {}), dict(resources.get("limits") or {})
    for name, value in {**asked, **limited}.items():
        try:
            quantity.milli(value)
        except quantity.QuantityError as error:
            raise errors.bad_request(f"quantities must match the regular expression; {name}: {error}") from error
    for name, value in limited.items():
        asked.setdefault(name, value)
    for name, value in asked.items():
        if name in _NATIVE or name.startswith("hugepages-"):
            continue
        if name not in limited:
            raise errors.invalid(
                PODS,
                pod,
                f"{field}.resources.limits",
                "Required value: Limit must be set for non overcommitable resources",
            )
        if quantity.milli(value) != quantity.milli(limited[name]):
            raise errors.invalid(
                PODS,
                pod,
                f"{field}.resources.requests",
                f'Invalid value: "{value}": must be equal to {name} limit of {limited[name]}',
            )
    as_text = {
        k: {n: str(v) for n, v in part.items()} for k, part in (("limits", limited), ("requests", asked)) if part
    }
    return {"terminationMessagePath": "/dev/termination-log", **container, "resources": as_text}


def check_update(old: Object, new: Object) -> None:
    """Raise ApiError 422 if an update changes an immutable field of the spec, or adds a scheduling gate."""
    name = old["metadata"]["name"]
    if _fixed(old["spec"]) != _fixed(new["spec"]):
        raise errors.invalid(
            PODS,
            name,
            "spec",
            "Forbidden: pod updates may not change fields other than "
            "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
            "`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
            "negative)",
        )
    before = [g["name"] for g in old["spec"].get("schedulingGates") or ()]
    added = [g["name"] for g in new["spec"].get("schedulingGates") or () if g["name"] not in before]
    if added:
        raise errors.invalid(
            PODS,
            name,
            "spec.schedulingGates",
            f"Forbidden: only deletion is allowed, but found new scheduling gate '{added[0]}'",
        )


def _fixed(spec: Object) -> Object:
    rest: Object = {k: v for k, v in spec.items() if k not in _MUTABLE_SPEC}
    for field in ("initContainers", "containers"):
        rest[field] = [{k: v for k, v in c.items() if k != "image"} for c in spec.get(field) or ()]
    return rest


def bound(pod: Object, node: str, annotations: dict[str, str]) -> Object:
    """The pod after a Binding; raises ApiError 409 if it cannot be bound."""
    name = pod["metadata"]["name"]
    if podspec.terminating(pod):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif podspec.node_of(pod):
        why = f'pod {name} is already assigned to node "{podspec.node_of(pod)}"'
    elif pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    else:
        metadata = dict(pod["metadata"])
        if annotations:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
        conditions = [c for c in pod["status"].get("conditions") or () if c["type"] != "PodScheduled"]
        status = {**pod["status"], "conditions": [*conditions, podspec.turned(pod, "PodScheduled", "True")]}
        return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}, "status": status}
    raise errors.conflict(PODS, name, why, "/binding")


def deletion(pod: Object, asked_grace: int | None) -> Object | None:
    """The pod marked for deletion; None if it is deleted at once: unbound, finished, or without grace period."""
    if not podspec.node_of(pod) or podspec.finished(pod):
        return None
    metadata = pod["metadata"]
    grace: int = pod["spec"]["terminationGracePeriodSeconds"] if asked_grace is None else asked_grace
    if podspec.terminating(pod) and (asked_grace is None or grace >= metadata["deletionGracePeriodSeconds"]):
        return pod  # a later request can only shorten the grace period
    if grace == 0:
        return None
    end = podspec.timestamp(time.time() + grace)
    return {**pod, "metadata": {**metadata, "deletionTimestamp": end, "deletionGracePeriodSeconds": grace}}


def log_container(pod: Object, asked: str) -> str:
    """The container whose log is read; raises ApiError 400 if none was asked for and there are several."""
    names = [container["name"] for container in pod["spec"]["containers"]]
    if not asked and len(names) > 1:
        name = pod["metadata"]["name"]
        raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: {names}")
    return asked or str(names[0])
