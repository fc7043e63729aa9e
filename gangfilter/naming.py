"""The dialects in which a pod can name its group, one row each: the keys that name it, and what else they declare.

What has no counterpart here:

- Koordinator's `mode`: a pending group holds nothing, strict or not. Its `match-policy`: use `on-member-lost`. Its
  `groups`, which bundle gangs, are refused with a sentence: each gang starts by itself.
- Kueue's gates: Kueue removes them, and the group starts after that. The pods of its serving groups (StatefulSet,
  LeaderWorkerSet) come one after the other, each when the one before runs: they are no gang.
- YuniKorn's placeholders: the task groups of an application are roles of one gang. Spark's running driver makes its
  executors: they are no gang.
- tf-operator's first form of a group, a PodDisruptionBudget: policy/v1beta1 is not served since Kubernetes 1.25.
- Kubernetes 1.35's Workloads are not read: `gangshare.io/min-member` can give the minimum of a `workloadRef`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from gangfilter import amounts, values
from gangfilter.group import Declaration
from gangfilter.values import Key, Reader, annotation, both, label
from protos.contract import names

Named = tuple[str, str]
"""The key or field that names a group, for people, and the group's name."""


def by_keys(keys: tuple[Key, ...], reader: Reader) -> Iterator[Named]:
    """The usual way: the value of each key is the name of a group."""
    for key in keys:
        if group := reader.read(values.name, key):
            yield str(key), group


class Dialect(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One way to name a group."""

    source: str
    """The place of its values, for people."""
    keys: tuple[Key, ...]
    """A pod without any of these keys does not use the dialect."""
    named: Callable[[tuple[Key, ...], Reader], Iterator[Named]] = by_keys
    """The groups that a pod names by these keys."""
    says: Mapping[str, tuple[Callable[[str], Any], tuple[Key, ...]]] = {}
    """Fields of the declaration: the parser, and the keys, of which the first that is set counts."""

    def declaration(self, reader: Reader) -> Declaration | None:
        """What the object declares about its group in this dialect, None if nothing; problems go to the reader."""
        said = {field: value for field, (parse, keys) in self.says.items() if (value := reader.read(parse, *keys))}
        return Declaration(source=self.source, **said) if said else None


def _koordinator(keys: tuple[Key, ...], reader: Reader) -> Iterator[Named]:
    for named in by_keys(keys, reader):
        reader.read(values.lone_group, _KOORDINATOR_BUNDLE)
        yield named


def _kueue(keys: tuple[Key, ...], reader: Reader) -> Iterator[Named]:
    if not any(reader.text(key) == "true" for key in _KUEUE_ONE_BY_ONE):
        yield from by_keys(keys, reader)


def _yunikorn(keys: tuple[Key, ...], reader: Reader) -> Iterator[Named]:
    """The application: YuniKorn reserves capacity for all its task groups before it starts one."""
    if not any(map(reader.text, keys)) or reader.text(_SPARK_ROLE):
        return
    for key in YUNIKORN_APPLICATION:
        if application := reader.read(values.name, key):
            yield str(key), application
            return
    reader.problems.append(f"{YUNIKORN_APPLICATION[0]} is missing: expected the application whose task group this is")


def _hived(keys: tuple[Key, ...], reader: Reader) -> Iterator[Named]:
    spec = reader.read(values.hived, *keys)
    if spec and spec.name:
        yield str(keys[0]), spec.name


def _et(keys: tuple[Key, ...], reader: Reader) -> Iterator[Named]:
    if reader.text(ET_GROUP) == ET_OPERATOR:
        yield from by_keys(keys, reader)


QUEUE_KEYS = (
    *both(names.QUEUE),
    annotation("scheduling.volcano.sh/queue-name"),
    *both("volcano.sh/queue-name"),
    label("kai.scheduler/queue"),
    label("quota.scheduling.koordinator.sh/name"),
    *both("yunikorn.apache.org/queue"),
)
"""Keys by which any pod names its queue; the first that is set counts. Kueue's queues are not read."""
KUBE_GROUP = annotation("scheduling.k8s.io/group-name")
VOLCANO_GROUP = annotation("scheduling.volcano.sh/group-name")
VOLCANO_QUEUE = annotation("scheduling.volcano.sh/queue-name")
COSCHEDULING_GROUP = label("scheduling.x-k8s.io/pod-group")
_KOORDINATOR_BUNDLE = annotation("gang.scheduling.koordinator.sh/groups")
_KUEUE_ONE_BY_ONE = (
    annotation("kueue.x-k8s.io/pod-group-fast-admission"),
    annotation("kueue.x-k8s.io/pod-group-serving"),
)
YUNIKORN_APPLICATION = (label("applicationId"), *both("yunikorn.apache.org/app-id"))
YUNIKORN_TASK_GROUP = annotation("yunikorn.apache.org/task-group-name")
_YUNIKORN_TASK_GROUPS = annotation("yunikorn.apache.org/task-groups")
_SPARK_ROLE = label("spark-role")
_HIVED_SPEC = annotation("hivedscheduler.microsoft.com/pod-scheduling-spec")
ET_GROUP, ET_OPERATOR = label("group-name"), "kai.alibabacloud.com"
ET_JOB = label("training-job-name")
"""It names a group only beside ET_GROUP."""
_VOLCANO_TERMS: Mapping[str, tuple[Callable[[str], Any], tuple[Key, ...]]] = {
    "min_member": (
        values.count,
        (annotation("scheduling.k8s.io/group-min-member"), annotation("scheduling.volcano.sh/group-min-member")),
    ),
    "min_resources": (amounts.resources, (annotation("scheduling.volcano.sh/group-min-resources"),)),
    "queue": (values.name, (VOLCANO_QUEUE, *both("volcano.sh/queue-name"))),
}

OWN = Dialect(
    source=f"pods' {names.DOMAIN}/*",
    keys=both(names.GROUP),
    says={
        "min_member": (values.count, both(names.MIN_MEMBER)),
        "min_by_role": (values.roles, both(names.MIN_MEMBER_BY_ROLE)),
        "queue": (values.name, both(names.QUEUE)),
        "schedule_timeout_s": (values.seconds, both(names.SCHEDULE_TIMEOUT_SECONDS)),
        "on_member_lost": (values.lost, both(names.ON_MEMBER_LOST)),
        "on_completion": (values.role, both(names.ON_COMPLETION)),
        "elastic": (values.flag, both(names.ELASTIC)),
        "expected_runtime_s": (values.run_time, both(names.EXPECTED_RUNTIME)),
    },
)
"""Our own keys; they are read of PodGroups too."""

QUEUES = Dialect(source="pods' queues", keys=(), says={"queue": (values.name, QUEUE_KEYS)})
"""The keys of queues, for a group whose dialects name no queue."""

DIALECTS = (
    OWN,
    Dialect(source="pods' scheduling.volcano.sh/*", keys=(KUBE_GROUP, VOLCANO_GROUP), says=_VOLCANO_TERMS),
    Dialect(
        source="pods' scheduling.volcano.sh/*", keys=(COSCHEDULING_GROUP,), says={"queue": _VOLCANO_TERMS["queue"]}
    ),
    Dialect(
        source="pods' pod-group.scheduling.sigs.k8s.io/*",
        keys=(label("pod-group.scheduling.sigs.k8s.io"), label("pod-group.scheduling.sigs.k8s.io/name")),
        says={"min_member": (values.count, (label("pod-group.scheduling.sigs.k8s.io/min-available"),))},
    ),
    Dialect(
        source="pods' gang.scheduling.koordinator.sh/*",
        keys=(annotation("gang.scheduling.koordinator.sh/name"),),
        named=_koordinator,
        says={
            "min_member": (
                values.count,
                (
                    annotation("gang.scheduling.koordinator.sh/min-available"),
                    annotation("gang.scheduling.koordinator.sh/total-number"),
                ),
            ),
        },
    ),
    Dialect(
        source="pods' kai.scheduler/*",
        keys=(annotation("pod-group-name"),),
        says={
            "min_member": (values.count, (annotation("kai.scheduler/batch-min-member"),)),
            "queue": (values.name, (label("kai.scheduler/queue"),)),
        },
    ),
    Dialect(
        source="pods' kueue.x-k8s.io/*",
        keys=(label("kueue.x-k8s.io/pod-group-name"), annotation("kueue.x-k8s.io/pod-group-name")),
        named=_kueue,
        says={"min_member": (values.count, (annotation("kueue.x-k8s.io/pod-group-total-count"),))},
    ),
    Dialect(
        source="pods' yunikorn.apache.org/*",
        keys=(_YUNIKORN_TASK_GROUPS, YUNIKORN_TASK_GROUP),
        named=_yunikorn,
        says={
            "min_by_role": (values.task_groups, (_YUNIKORN_TASK_GROUPS,)),
            "queue": (values.name, (label("queue"), *both("yunikorn.apache.org/queue"))),
        },
    ),
    Dialect(source="pods' godel.bytedance.com/*", keys=both("godel.bytedance.com/pod-group-name")),
    Dialect(
        source="pods' hivedscheduler.microsoft.com/*",
        keys=(_HIVED_SPEC,),
        named=_hived,
        says={
            "min_member": (lambda text: values.hived(text).pods, (_HIVED_SPEC,)),
            "queue": (lambda text: values.name(values.hived(text).virtual_cluster), (_HIVED_SPEC,)),
        },
    ),
    Dialect(source="pods' kai.alibabacloud.com labels", keys=(ET_JOB,), named=_et),
)
"""In order of precedence; the fields of the pod's spec come after them."""

KEYS = tuple(dict.fromkeys((*(key for dialect in DIALECTS for key in dialect.keys), *both(names.MIN_MEMBER))))
"""All keys that ask for a group; a pod without one of them, or a field of its spec, is in none."""
