"""The kinds of objects that declare a group, one row each, with the reader of its `spec`.

Most are PodGroups of one shape. Our own annotations and labels on such an object add to its spec. Kinds whose
definition is not installed are never seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gangfilter.agreement import combined
from gangfilter.amounts import amounts
from gangfilter.group import Declaration, GroupKey
from gangfilter.naming import OWN
from gangfilter.values import BadValue, Reader, by_role, lost, name, role, shown
from protos.contract import mistakes, names
from protos.contract.bounds import MEMBERS, TIME
from protos.contract.codec import BAD_JSON
from protos.contract.objects import Quantities, decode_raw

Fields = dict[str, Any]
"""Fields of a Declaration."""
T = TypeVar("T")


class PodGroupError(ValueError):
    """An object that declares a group and cannot be read; `key` is its group, None if even the name is unreadable."""

    def __init__(self, key: GroupKey | None, sentence: str) -> None:
        super().__init__(sentence)
        self.key = key


class Kind(msgspec.Struct, frozen=True, eq=False):
    """A kind of objects, each of which declares a group."""

    api_group: str
    version: str
    plural: str
    kind: str
    says: Callable[[msgspec.Raw], Fields]
    """Reads `spec`; raises BadValue, and msgspec's errors."""

    @property
    def api_version(self) -> str:
        """Group and version, as in an object's apiVersion."""
        return f"{self.api_group}/{self.version}"

    @property
    def source(self) -> str:
        return f"{self.kind} {self.api_version}"


class _Spec(msgspec.Struct, rename="camel"):
    """The fields of PodGroups; each kind has some of them."""

    min_member: int | None = None
    min_task_member: dict[str, int] | None = None
    min_resources: Quantities | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    schedule_timeout_seconds: int | None = None
    on_member_lost: str | None = None
    on_completion: str | None = None


class _SubGroup(msgspec.Struct, rename="camel"):
    name: str
    min_member: int | None = None
    parent: str | None = None


class _SubGroups(msgspec.Struct, rename="camel"):
    sub_groups: list[_SubGroup] | None = None


class _Gang(msgspec.Struct, rename="camel"):
    min_count: int


class _Policy(msgspec.Struct):
    gang: _Gang | None = None


class _Upstream(msgspec.Struct, rename="camel"):
    scheduling_policy: _Policy
    priority_class_name: str | None = None


class _Replicas(msgspec.Struct, rename="camel"):
    replicas: int | None = None
    min_replicas: int | None = None


class _ReplicaSpecs(msgspec.Struct):
    worker: _Replicas


class _TrainingJob(msgspec.Struct, rename="camel"):
    et_replica_specs: _ReplicaSpecs


_SPEC = msgspec.json.Decoder(_Spec)
_SUB_GROUPS = msgspec.json.Decoder(_SubGroups)
_UPSTREAM = msgspec.json.Decoder(_Upstream)
_TRAINING_JOB = msgspec.json.Decoder(_TrainingJob)


def declaration(
    kind: Kind, data: bytes, resources: names.Resources = names.DEFAULT_RESOURCES
) -> tuple[GroupKey, Declaration]:
    """The group that an object of this kind declares (JSON, as bytes or msgspec.Raw); raises PodGroupError.

    `resources`: those of the installation.
    """
    try:
        decoded = decode_raw(data)
    except BAD_JSON as error:
        raise PodGroupError(None, f"{kind.source} cannot be read: {error}") from error
    meta = decoded.metadata
    key = GroupKey(meta.namespace, meta.name)
    try:
        fields = kind.says(decoded.spec)
    except BAD_JSON as error:
        raise PodGroupError(key, f"{kind.source} {key}: spec cannot be read: {error}") from error
    said = [Declaration(source=kind.source, **fields)]
    reader = Reader(meta.annotations, meta.labels)
    if own := OWN.declaration(reader):
        said.append(msgspec.structs.replace(own, source=f"its annotations {names.DOMAIN}/*"))
    declared, differences = combined(said)
    problems = (*mistakes.of_group(meta.annotations, meta.labels, resources), *reader.problems, *differences)
    return key, msgspec.structs.replace(declared, source=kind.source, problems=problems)


def _common(spec: msgspec.Raw) -> Fields:
    said = _SPEC.decode(spec)
    return {
        "min_member": _read("minMember", said.min_member, _members),
        "min_by_role": _read("minTaskMember", said.min_task_member, by_role) or (),
        "min_resources": _read("minResources", said.min_resources, amounts) or (),
        "queue": _read("queue", said.queue or None, name) or "",
        "priority_class": _read("priorityClassName", said.priority_class_name or None, name) or "",
        "on_member_lost": _read("onMemberLost", said.on_member_lost or None, lost),
        "on_completion": _read("onCompletion", said.on_completion or None, role) or "",
    }


def _limited(spec: msgspec.Raw) -> Fields:
    """PodGroups whose scheduleTimeoutSeconds ends a group that waited for so long: ours, and Gödel's.

    In scheduler-plugins that field limits how long a member with a node waits in Permit; then the group is tried again,
    without end. Nothing here waits in that way, so the field is not read there. Source: scheduler-plugins
    pkg/coscheduling Permit and Unreserve; Gödel's PodGroup phase Timeout.
    """
    limit = _SPEC.decode(spec).schedule_timeout_seconds
    return _common(spec) | {"schedule_timeout_s": _read("scheduleTimeoutSeconds", limit, _limit)}


def _volcano(spec: msgspec.Raw) -> Fields:
    """As in Volcano, roles count only if the minimum covers them all: its Jobs declare every replica by role."""
    fields = _common(spec)
    if sum(minimum for _, minimum in fields["min_by_role"]) > (fields["min_member"] or MEMBERS.most):
        fields["min_by_role"] = ()
    return fields


def _kai(spec: msgspec.Raw) -> Fields:
    """Pods are in the innermost sub-groups, which are roles here; all count, whatever minSubGroup says."""
    groups = _SUB_GROUPS.decode(spec).sub_groups or []
    outer = {group.parent for group in groups}
    minimums = {group.name: group.min_member or 0 for group in groups if group.name not in outer}
    return _common(spec) | {"min_by_role": _read("subGroups", minimums, by_role) or ()}


def _upstream(spec: msgspec.Raw) -> Fields:
    """Members of a group with the policy `basic` start one by one."""
    said = _UPSTREAM.decode(spec)
    gang = said.scheduling_policy.gang
    minimum = _read("schedulingPolicy.gang.minCount", gang.min_count, _members) if gang else 1
    priority_class = _read("priorityClassName", said.priority_class_name or None, name)
    return {"min_member": minimum, "priority_class": priority_class or ""}


def _training_job(spec: msgspec.Raw) -> Fields:
    """ET-operator makes the launcher when `replicas` workers run: fewer would hold GPUs without any use.

    Later workers come and go while there are `minReplicas`, so the GPUs of a lost worker are not held.
    """
    worker = _TRAINING_JOB.decode(spec).et_replica_specs.worker
    replicas = worker.replicas or 0
    lasting = replicas if worker.min_replicas is None else min(worker.min_replicas, replicas)
    return {
        "elastic": True,
        "on_member_lost": "ignore",
        "min_by_role": _read("etReplicaSpecs.worker.replicas", {"worker": replicas}, by_role) or (),
        "lasting_by_role": _read("etReplicaSpecs.worker.minReplicas", {"worker": lasting}, by_role) or (),
    }


def _read(field: str, value: Any, parse: Callable[[Any], T]) -> T | None:
    """A field of `spec`, None if it is not set; raises BadValue that names the field."""
    if value is None:
        return None
    try:
        return parse(value)
    except BadValue as error:
        written = "" if isinstance(value, dict) else f" is {shown(value)}"
        raise BadValue(f"spec.{field}{written}: expected {error}") from error


def _members(number: int) -> int:
    """A minimum; with 0 each member starts by itself."""
    if not 0 <= number <= MEMBERS.most:
        raise BadValue(f"a whole number from 0 to {MEMBERS.most}")
    return number or 1


def _limit(number: int) -> float | None:
    """A limit in seconds; 0 is no limit."""
    if not 0 <= number <= TIME.most:
        raise BadValue(f"a whole number of seconds from 0 to {TIME.most}")
    return float(number) or None


KINDS = (
    Kind(names.DOMAIN, "v1alpha1", "podgroups", "PodGroup", _limited),
    Kind("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", _volcano),
    Kind("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", _common),
    Kind("scheduling.incubator.k8s.io", "v1alpha1", "podgroups", "PodGroup", _common),
    Kind("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup", _common),
    Kind("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup", _kai),
    Kind("scheduling.godel.kubewharf.io", "v1alpha1", "podgroups", "PodGroup", _limited),
    Kind("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", _upstream),
    Kind("scheduling.k8s.io", "v1alpha3", "podgroups", "PodGroup", _upstream),
    Kind("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup", _upstream),
    Kind("kai.alibabacloud.com", "v1alpha1", "trainingjobs", "TrainingJob", _training_job),
)
"""Of an API group with several versions, the first that a cluster serves is enough."""
