"""ProvisioningRequests of autoscaling.x-k8s.io: how a gang asks an autoscaler for capacity, once and as a whole.

An autoscaler accepts a request, and says in conditions whether the capacity is there. Pods that name a request are left
alone by the usual scale-up. Source: kubernetes/autoscaler, apis/provisioningrequest/autoscaling.x-k8s.io/v1, and
processors/provreq.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from protos.contract import names
from protos.contract.bounds import PROVISIONING_CONDITIONS, PROVISIONING_TEXT
from protos.contract.objects import Condition, ObjectMeta, OwnerReference
from protos.contract.printable import printable

GROUP = "autoscaling.x-k8s.io"
API_VERSION, KIND, PLURAL = f"{GROUP}/v1", "ProvisioningRequest", "provisioningrequests"
CONSUMES = f"{GROUP}/consume-provisioning-request"
CLASS = f"{GROUP}/provisioning-class-name"
SELECTOR = f"{names.MANAGED_BY}={names.EXTENDER}"
"""Finds the requests and templates that an extender made."""
POD_SETS = 32
"""The most pod sets of one request. Source: the definition's maxItems."""
CLASS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAME = re.compile(r"gangshare-[0-9a-f]{12}-(?P<attempt>[1-9][0-9]{0,5})")
_POD_FIELDS = (
    "affinity", "hostNetwork", "nodeSelector", "overhead", "preemptionPolicy", "priorityClassName", "resources",
    "runtimeClassName", "schedulerName", "tolerations", "topologySpreadConstraints",
)  # fmt: skip
_CONTAINER_FIELDS = ("name", "image", "ports", "resources", "restartPolicy")

State = Literal["", "Accepted", "Provisioned", "Failed", "BookingExpired", "CapacityRevoked"]
"""What its autoscaler said last; "" if no autoscaler has taken it."""
OVER: tuple[State, ...] = ("CapacityRevoked", "BookingExpired", "Failed")
"""States after which no capacity comes of it."""
_ORDER: tuple[State, ...] = (*OVER, "Provisioned", "Accepted")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded ProvisioningRequest of an extender."""

    namespace: str
    name: str
    uid: str
    group: str
    """The name of its gang."""
    attempt: int
    state: State = ""
    message: str = ""
    changed: str | None = None
    """When it came to this state: RFC 3339."""


class _Spec(msgspec.Struct):
    conditions: tuple[Condition, ...] = ()


class _Object(msgspec.Struct):
    metadata: ObjectMeta
    status: _Spec | None = None


class List(msgspec.Struct):
    """Objects of a collection, not decoded yet."""

    items: list[msgspec.Raw] = []


decode_list = msgspec.json.Decoder(List)
_decoder = msgspec.json.Decoder(_Object)


class _Fields(msgspec.Struct):
    spec: msgspec.Raw = msgspec.field(name="f:spec", default=msgspec.Raw())


class _Entry(msgspec.Struct):
    manager: str = ""
    fields: _Fields = msgspec.field(name="fieldsV1", default_factory=_Fields)


_entries = msgspec.json.Decoder(list[_Entry])


def decode(raw: bytes | msgspec.Raw) -> Request | None:
    """A request from its JSON, None if no extender made it; raises msgspec's errors."""
    found = _decoder.decode(raw)
    meta, named = found.metadata, _NAME.fullmatch(found.metadata.name)
    group = meta.annotations.get(names.GROUP, "")
    if named is None or meta.name != name(meta.namespace, group, int(named["attempt"])) or not _by_us(meta):
        return None
    conditions = found.status.conditions[: PROVISIONING_CONDITIONS.most] if found.status else ()
    true = {each.type: each for each in conditions if each.status == "True"}
    state: State = next((state for state in _ORDER if state in true), "")
    last = true.get(state)
    return Request(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        group=group,
        attempt=int(named["attempt"]),
        state=state,
        message=printable(last.message)[: PROVISIONING_TEXT.most] if last else "",
        changed=last.last_transition_time if last else meta.creation_timestamp,
    )


def _by_us(meta: ObjectMeta) -> bool:
    """Whether an extender, and nobody else, wrote the spec. Everybody else's are not believed."""
    if meta.labels.get(names.MANAGED_BY) != names.EXTENDER or not meta.managed_fields:
        return False
    try:
        entries = _entries.decode(meta.managed_fields)
    except (msgspec.DecodeError, RecursionError):
        return False
    return {entry.manager for entry in entries if entry.fields.spec} == {names.EXTENDER}


def name(namespace: str, group: str, attempt: int) -> str:
    """The name of a gang's request. It is the same after a restart, so nothing is asked twice."""
    digest = hashlib.sha256(f"{namespace}/{group}".encode()).hexdigest()[:12]
    return f"gangshare-{digest}-{attempt}"


def body(request: Request, owner: OwnerReference, class_name: str, counts: Sequence[int]) -> dict[str, Any]:
    """The request to create. Its pod sets have so many pods, each of the template of the same number."""
    pod_sets = [
        {"podTemplateRef": {"name": template_name(request.name, number)}, "count": count}
        for number, count in enumerate(counts)
    ]
    spec = {"provisioningClassName": class_name, "podSets": pod_sets}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": _metadata(request, request.name, owner), "spec": spec}


def template(request: Request, number: int, owner: OwnerReference, pod: Mapping[str, Any]) -> dict[str, Any]:
    """The PodTemplate of a pod set: what decides of a member's JSON where it fits, and nothing else.

    Volumes, variables and commands stay out: who may read templates may not be the one who may read pods.
    """
    given = pod["spec"]
    containers = {key: list(map(_container, given[key])) for key in ("containers", "initContainers") if given.get(key)}
    spec = {field: given[field] for field in _POD_FIELDS if field in given}
    labels = pod["metadata"].get("labels", {})
    metadata = _metadata(request, template_name(request.name, number), owner)
    made = {"metadata": {"labels": labels}, "spec": {**spec, **containers}}
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": made}


def template_name(request: str, number: int) -> str:
    """The name of a request's PodTemplate."""
    return f"{request}-{number}"


def _container(given: Mapping[str, Any]) -> dict[str, Any]:
    return {field: given[field] for field in _CONTAINER_FIELDS if field in given}


def _metadata(request: Request, called: str, owner: OwnerReference) -> dict[str, Any]:
    reference = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
    return {
        "name": called,
        "namespace": request.namespace,
        "labels": {names.MANAGED_BY: names.EXTENDER},
        "annotations": {names.GROUP: request.group},
        "ownerReferences": [reference],
    }


def consuming(request: str, class_name: str) -> dict[str, str]:
    """Say on a member that it consumes this request, so that no autoscaler adds nodes for it alone."""
    return {CONSUMES: request, CLASS: class_name}


def newest(requests: Iterable[Request]) -> tuple[dict[tuple[str, str], Request], list[Request]]:
    """The last attempt of each gang, by namespace and name; and all earlier ones."""
    last: dict[tuple[str, str], Request] = {}
    earlier: list[Request] = []
    for request in sorted(requests, key=lambda each: each.attempt):
        before = last.get((request.namespace, request.group))
        if before is not None:
            earlier.append(before)
        last[request.namespace, request.group] = request
    return last, earlier
