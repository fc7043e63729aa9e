"""Which group a pod belongs to, and what the pod itself declares about that group.

The first dialect that names a group decides. A dialect that names another group is reported as a problem, and one that
names the same group adds its declaration. Our own keys add to any dialect: pods of operators can carry them too.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping

from gangfilter import naming
from gangfilter.agreement import combined
from gangfilter.group import GroupKey, Membership
from gangfilter.values import Reader, both, label, role, shown
from gangfilter.values import name as queue_name
from protos.contract import names
from protos.contract.objects import Pod, PodSpec

REQUIRED_ROLES = frozenset({"launcher", "mpimaster", "master", "chief", "ps"})
"""Roles without which the other members cannot work."""

_DIALECT_OF = {key.name: index for index, dialect in enumerate(naming.DIALECTS) for key in dialect.keys}
"""The index of the dialect that a key belongs to."""
_NAME_QUEUES = frozenset(key.name for key in naming.QUEUE_KEYS)
_ANNOTATIONS = frozenset(key.name for key in naming.KEYS if key.place == "annotation")
_LABELS = frozenset(key.name for key in naming.KEYS if key.place == "label")
_LWS_INDEX = label("leaderworkerset.sigs.k8s.io/worker-index")
"""On a pod of a LeaderWorkerSet. Source: sigs.k8s.io/lws api/leaderworkerset/v1."""
_JOB_ROLE = label("training.kubeflow.org/job-role")
_OPERATOR, _MPI_OPERATORS = label("training.kubeflow.org/operator-name"), ("mpi-operator", "mpijob-controller")
_OLD_MPI_JOB = label("mpi_job_name")
ROLES = (
    *both(names.ROLE),
    *both("volcano.sh/task-spec"),
    naming.YUNIKORN_TASK_GROUP,
    label("kai.scheduler/subgroup-name"),
    label("training.kubeflow.org/replica-type"),
    _JOB_ROLE,
    label("mpi_role_type"),
    label("training-job-role"),
    label("tf-replica-type"),
    label("pytorch-replica-type"),
    label("replica-type"),
)
"""Keys of the role; the first that is set counts."""


_OF_GROUPS = (
    *both(names.MIN_MEMBER), *both(names.MIN_MEMBER_BY_ROLE), *both(names.ROLE), *both(names.ON_MEMBER_LOST),
    *both(names.ON_COMPLETION), *both(names.ELASTIC), *both(names.SCHEDULE_TIMEOUT_SECONDS),
)  # fmt: skip
"""Our keys that say something of a group only."""
_MISPLACED = {
    wrong: key
    for key in naming.KEYS
    for wrong in both(key.name)
    if wrong not in naming.KEYS and key.name != naming.ET_JOB.name
}
"""Keys that name a group, as annotation where their product reads a label, and the other way round."""
_UNNAMED = frozenset(key.name for key in (*_OF_GROUPS, *_MISPLACED))
"""Keys of pods that mean to be in a group and name none."""


def speaks(pod: Pod) -> bool:
    """Whether the pod has a key or field that can name a group; a pod without one is in no group."""
    meta, spec = pod.metadata, pod.spec
    plain = _ANNOTATIONS.isdisjoint(meta.annotations) and _LABELS.isdisjoint(meta.labels)
    return not plain or spec.scheduling_group is not None or spec.workload_ref is not None


def born_gated(pod: Pod, schedulers: Collection[str]) -> bool:
    """Whether a new pod gets our scheduling gate: it has one of these schedulers, may be in a group, and has no node.

    The admission policy in manifests/components/gate-policy decides the same.
    """
    spec = pod.spec
    gated = any(gate.name == names.PLAN_GATE for gate in spec.scheduling_gates)
    return spec.scheduler_name in schedulers and not spec.node_name and not gated and speaks(pod)


def membership(pod: Pod) -> Membership | None:
    """The group that the pod names and what it declares about it, None if it names no group. Never raises.

    A pod that asks for a group without a readable name belongs to the group without a name. That group has no minimum
    and so waits: the pod must not start alone.
    """
    meta, spec = pod.metadata, pod.spec
    if not speaks(pod) and (spec.node_name or _UNNAMED.isdisjoint((*meta.annotations, *meta.labels))):
        return None
    reader = Reader(_as_meant(meta.annotations, meta.labels), meta.labels)
    used = sorted({_DIALECT_OF[key] for key in (*meta.annotations, *meta.labels) if key in _DIALECT_OF})
    dialects = [naming.DIALECTS[index] for index in used]
    named = [(*named, dialect) for dialect in dialects for named in dialect.named(dialect.keys, reader)]
    named += [(*named, naming.OWN) for named in _in_spec(spec)]
    if not named:
        return _nameless(meta.namespace, reader)
    first, chosen, _ = named[0]
    for where, group, _ in named:
        if group != chosen:
            reader.problems.append(f"{first} names group {chosen}, {where} names {group}: {chosen} is taken")
    declaring = dict.fromkeys((naming.OWN, *(dialect for _, group, dialect in named if group == chosen)))
    said = [declaration for dialect in declaring if (declaration := dialect.declaration(reader))]
    if not any(declaration.queue for declaration in said) and (declaration := naming.QUEUES.declaration(reader)):
        said.append(declaration)
    declaration, differences = combined(said) if said else (None, ())
    role_name, required = _role(reader)
    problems = tuple(dict.fromkeys((*reader.problems, *differences)))
    leader = "launcher" if role_name == "worker" and _of_mpi_job(meta.labels) else ""
    return Membership(GroupKey(sys.intern(meta.namespace), chosen), role_name, required, declaration, problems, leader)


def queue(pod: Pod) -> str:
    """The queue that the pod itself names, "" if it names none; of a name that cannot be read, its quoted beginning."""
    meta = pod.metadata
    if _NAME_QUEUES.isdisjoint(meta.annotations) and _NAME_QUEUES.isdisjoint(meta.labels):
        return ""
    reader = Reader(meta.annotations, meta.labels)
    found = reader.read(queue_name, *naming.QUEUE_KEYS)
    if found is None and reader.problems:  # no queue has such a name: the pod must not run in another queue
        return shown(next(filter(None, map(reader.text, naming.QUEUE_KEYS))))
    return found or ""


def _in_spec(spec: PodSpec) -> Iterator[naming.Named]:
    """Groups named by Kubernetes' own fields. The name of a Workload's group is made of all parts of its reference."""
    group, workload = spec.scheduling_group, spec.workload_ref
    if group and group.pod_group_name:
        yield "spec.schedulingGroup", group.pod_group_name
    if workload:
        parts = (workload.name, workload.pod_group, workload.pod_group_replica_key)
        yield "spec.workloadRef", "/".join(part for part in parts if part)


def _nameless(namespace: str, reader: Reader) -> Membership | None:
    """The membership of a pod that says something of its group, and gives no readable name; None for any other pod."""
    problems = reader.problems
    problems += [f"{key} is empty: expected the name of a group" for key in both(names.GROUP) if reader.blank(key)]
    for key, right in _MISPLACED.items():
        if reader.text(key) and not problems:
            problems.append(f"{key} names no group: expected it as {right.place}")
    for key in _OF_GROUPS:
        if reader.text(key) and not problems:
            problems.append(f"{key} is set, but no group is named: expected {names.GROUP} too")
    return Membership(GroupKey(namespace, ""), problems=tuple(reader.problems)) if reader.problems else None


def _role(reader: Reader) -> tuple[str, bool]:
    """The pod's role, and whether the other members need it. ET-operator makes its launcher when all workers run."""
    name = reader.read(role, *ROLES)
    if not name and (index := reader.text(_LWS_INDEX)):
        name = "leader" if index == "0" else "worker"
    needed = name in REQUIRED_ROLES or reader.text(_JOB_ROLE).lower() in REQUIRED_ROLES
    return name or "", needed and reader.text(naming.ET_GROUP) != naming.ET_OPERATOR


def _of_mpi_job(labels: Mapping[str, str]) -> bool:
    """MPI Operator can make the launcher only when all workers run, and still counts it in the minimum."""
    return labels.get(_OPERATOR.name) in _MPI_OPERATORS or _OLD_MPI_JOB.name in labels


def _as_meant(annotations: Mapping[str, str], labels: Mapping[str, str]) -> Mapping[str, str]:
    """The annotations with an MPIJob's queue under the key of queues.

    An often copied article on MPI Operator puts the queue under the key of the group.
    """
    queue = annotations.get(naming.VOLCANO_GROUP.name)
    job = annotations.get(naming.KUBE_GROUP.name) or labels.get(naming.COSCHEDULING_GROUP.name)
    if not (queue and job and _of_mpi_job(labels)) or queue == job:
        return annotations
    others = {key: text for key, text in annotations.items() if key != naming.VOLCANO_GROUP.name}
    return {naming.VOLCANO_QUEUE.name: queue} | others
