"""Values that cannot be read, or differ: those of gangs on their pods and PodGroups, of GpuClasses and of queues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from extender.cluster import kinds
from extender.engine.types.effects import Report
from protos.contract import names
from protos.contract.codec import BAD_JSON
from protos.contract.reason import Reason
from protos.kube.changes import Ref
from tests.builders import a_pod
from tests.unit.engine.gang_story import two_nodes
from tests.unit.refusals.case import Case, Section

CORRECT = "correct the value"
KOORDINATOR = "gang.scheduling.koordinator.sh/groups"
YUNIKORN = "yunikorn.apache.org/task-groups"
HIVED = "hivedscheduler.microsoft.com/pod-scheduling-spec"
RESOURCES = "scheduling.volcano.sh/group-min-resources"
OF_HIVED = "a PodSchedulingSpec of HiveD with affinityGroup.name and affinityGroup.members[].podNumber"
OF_YUNIKORN = 'task groups, like [{"name": "worker", "minMember": 2}]'
BY_ROLE = 'members by role, like {"launcher": 1, "worker": 2}'
LIMIT = 2**31


def _pod(annotations: Mapping[str, str], labels: Mapping[str, str] | None = None) -> Reason:
    """What is told of the gang that a pod with these keys is in."""
    world = two_nodes()
    world.create(a_pod("p", mem=8, annotations=annotations, labels=dict(labels or {})))
    report = next(effect.reason for effect in world.done if isinstance(effect, Report))
    return Reason(report.code, report.numbers)


def _key(key: str, value: str, expected: str, place: str = "annotation") -> Case:
    """A key of a gang's pod with a value that cannot be read."""
    said = {"scheduling.k8s.io/group-name" if key == RESOURCES else names.GROUP: "g", key: value}
    return Case("GangConflict", f"{place} {key} is <value>: expected {expected}", partial(_pod, said), CORRECT)


def _object(title: str, spec: Any, *, name: str = "x", data: Any = None, **fields: Any) -> Reason:
    """What the owner of an object with this spec is told."""
    told: list[Reason] = []

    def complain(_: object, reason: Reason) -> None:
        told.append(reason)

    kind = next(one for one in (*kinds.optional(complain), kinds.unhealthy_gpus(complain)) if one.title == title)
    ref = Ref("default" if kind.kind == "PodGroup" else "", name, "uid")
    body = {"metadata": {"name": name, "namespace": ref.namespace, **fields}, "spec": spec, "data": data or {}}
    try:
        kind.seen(ref, kind.decode(msgspec.json.encode(body)))
    except BAD_JSON as error:
        assert kind.unreadable is not None
        kind.unreadable(ref, str(error))
    return told[0]


def _group(sentence: str, **spec: Any) -> Case:
    reach = partial(_object, "PodGroup gangshare.io/v1alpha1", spec)
    said = f"PodGroup gangshare.io/v1alpha1 <gang>: spec cannot be read: {sentence}"
    return Case("GroupUnreadable", said, reach, CORRECT)


def _class(sentence: str, **spec: Any) -> Case:
    reach = partial(_object, "GpuClass gangshare.io/v1alpha1", spec)
    return Case("ClassUnreadable", f"spec cannot be read: {sentence}", reach)


def _queue(sentence: str, **spec: Any) -> Case:
    reach = partial(_object, "Queue gangshare.io/v1alpha1", spec)
    return Case("QueueUnreadable", f"spec cannot be read: {sentence}", reach)


def _namespace(sentence: str, **labels: str) -> Case:
    said = {f"{names.DOMAIN}/{label.replace('_', '-')}": value for label, value in labels.items()}
    reach = partial(_object, "Namespace v1", {}, labels=said)
    return Case("NamespaceUnreadable", sentence, reach, "correct the label")


def _selector(sentence: str, selector: Any) -> Case:
    reach = partial(_object, "Queue gangshare.io/v1alpha1", {"namespaceSelector": selector})
    return Case("QueueUnreadable", f"{sentence}; it admits no namespace", reach)


def _expressions(*entries: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"matchExpressions": [{"key": "team", **entry} for entry in entries]}


def _amounts(count: int) -> dict[str, str]:
    return {f"example.com/r{number}": "1" for number in range(count)}


GANGS = [
    _key(names.MIN_MEMBER, "four", "a whole number from 1 to 150000"),
    _key(names.QUEUE, "a b", "a name of at most 253 characters without spaces"),
    _key(names.SCHEDULE_TIMEOUT_SECONDS, "1m", "a whole number of seconds"),
    _key(names.SCHEDULE_TIMEOUT_SECONDS, str(LIMIT), "at most 2147483647 seconds"),
    _key(names.EXPECTED_RUNTIME, "soon", "seconds above 0, like 5400, or a duration like 90m or 2h30m"),
    _key(names.ELASTIC, "yes", "true or false"),
    _key(names.ON_MEMBER_LOST, "panic", "wait, restart or ignore"),
    _key(names.MIN_MEMBER_BY_ROLE, "worker=2", BY_ROLE),
    _key(names.MIN_MEMBER_BY_ROLE, " " * 65_536 + "{}" + "x" * 65_536, f"{BY_ROLE}, of at most 65536 characters"),
    _key(names.MIN_MEMBER_BY_ROLE, json.dumps({f"r{i}": 1 for i in range(65)}), f"{BY_ROLE}, of at most 64 roles"),
    _key(names.MIN_MEMBER_BY_ROLE, '{"worker": -1}', f"{BY_ROLE}, each from 0 to 150000; <role> has <number>"),
    _key(RESOURCES, "8", 'amounts by resource, like {"cpu": "3", "memory": "8Gi"}'),
    _key(RESOURCES, json.dumps(_amounts(65)), "at most 64 resources"),
    _key(RESOURCES, '{"cpu": "many"}', "amounts by resource; <resource>: <quantity> is no quantity: <expected>"),
    _key(RESOURCES, '{"cpu": "-1"}', "amounts of zero or more; <resource> is <value>"),
    Case(
        "GangConflict",
        f"annotation {KOORDINATOR} is <value>: expected at most one group: each starts by itself",
        lambda: _pod({"gang.scheduling.koordinator.sh/name": "g", KOORDINATOR: '["default/a", "default/b"]'}),
        CORRECT,
    ),
    Case(
        "GangConflict",
        f"annotation {YUNIKORN} is <value>: expected {OF_YUNIKORN}",
        lambda: _pod({YUNIKORN: "worker"}, {"applicationId": "g"}),
        CORRECT,
    ),
    Case(
        "GangUnnamed",
        "label applicationId is missing: expected the application whose task group this is",
        lambda: _pod({YUNIKORN: "[]"}),
        "set the label",
    ),
    Case("GangUnnamed", f"annotation {HIVED} is <value>: expected {OF_HIVED}", lambda: _pod({HIVED: "g"}), CORRECT),
    Case(
        "GangUnnamed",
        f"annotation {HIVED} is <value>: expected {OF_HIVED}, of at most 2048 characters and 64 brackets",
        lambda: _pod({HIVED: "g" * 2049}),
        CORRECT,
    ),
    Case(
        "GangUnnamed",
        f"annotation {HIVED} is <value>: expected {OF_HIVED}",
        lambda: _pod({HIVED: "affinityGroup: g"}),
        CORRECT,
    ),
    Case(
        "GangUnnamed",
        "<place> gangshare.io/min-member is set, but no group is named: expected gangshare.io/group too",
        lambda: _pod({names.MIN_MEMBER: "2"}),
    ),
    Case(
        "GangConflict",
        "<key> names group <group>, <key> names <group>: <group> is taken",
        lambda: _pod({names.GROUP: "g", "scheduling.k8s.io/group-name": "other"}),
        "name one group",
    ),
    Case(
        "GangConflict",
        "<field> differs: <value> by <source>, <value> by <source>; <value> holds",
        lambda: _pod(
            {"scheduling.k8s.io/group-name": "g", "scheduling.k8s.io/group-min-member": "2", names.MIN_MEMBER: "3"}
        ),
        "give one value",
    ),
]
GROUPS = [
    Case(
        "GroupUnreadable",
        "PodGroup gangshare.io/v1alpha1 cannot be read: <error>",
        partial(_object, "PodGroup gangshare.io/v1alpha1", {}, labels=5),
        CORRECT,
    ),
    _group("spec.minMember is <value>: expected a whole number from 0 to 150000", minMember=-1),
    _group(
        "spec.scheduleTimeoutSeconds is <value>: expected a whole number of seconds from 0 to 2147483647",
        scheduleTimeoutSeconds=-1,
    ),
]
CLASSES = [
    _class("<field> is <value>: expected <what the annotation expects>", link="fast"),
    _class("maxMemory is <value>: expected no less than minMemory, which is <value>", minMemory="2Gi", maxMemory="1Gi"),
    _class("maxMemory is <value>: expected an amount like 40Gi, more than zero", maxMemory="0"),
    _class("minClockMHz is <value>: expected a clock in MHz, like 1400", minClockMHz=-1),
]
QUEUES = [
    _queue("<field> is <value>: expected a whole number from <number> to <number>", weight=0),
    _queue("<field>: resources of one list of amounts: <count>, expected at most 64", deserved=_amounts(65)),
    _queue(
        "<field>: name of a resource: <count> characters, expected at most 317 characters",
        deserved={"a/" + "b" * 400: 1},
    ),
    _queue(
        "<field> names <resource>: expected gpus, class/NAME, cpu, memory, pods or a resource like "
        "gangshare.io/gpu-mem",
        deserved={"gpu": 1},
    ),
    _queue("<field>.<resource>: <value> is no quantity: <expected>", deserved={"gpus": "many"}),
    _queue("<field>.<resource> is <value>: expected zero or more", deserved={"gpus": "-1"}),
    _queue(
        "<field>.<resource> is <value>: expected no more than <field>, which is <value>",
        deserved={"gpus": 2},
        capability={"gpus": 1},
    ),
    _queue("namespaces of a queue: <count>, expected at most 1024", namespaces=[str(number) for number in range(1025)]),
    _selector("spec.namespaceSelector cannot be read: <error>", "team"),
    _selector(
        "matchLabels and matchExpressions of a namespaceSelector: <count>, expected at most 32",
        {"matchLabels": {f"l{number}": "" for number in range(33)}},
    ),
    _selector(
        "spec.namespaceSelector: <key> <operator>: expected In, NotIn, Exists or DoesNotExist",
        _expressions({"operator": "Gt"}),
    ),
    _selector(
        "spec.namespaceSelector: <key> <operator> has <count> values: expected some for In and NotIn, and none else",
        _expressions({"operator": "In"}),
    ),
    _selector(
        "spec.namespaceSelector: <key> <operator>: values of an entry of matchExpressions: <count>, expected at most "
        "256",
        _expressions({"operator": "In", "values": [str(number) for number in range(257)]}),
    ),
]
OTHERS = [
    _namespace("label <label> is <value>: expected <values>", unknown_keys="denied"),
    _namespace("label <label> is not known to Gangshare: expected <labels>", unknown_key="deny"),
    _namespace(
        "labels of a namespace: <count>, expected at most 256: no queue that selects namespaces admits it",
        **{f"l{number}": "" for number in range(257)},
    ),
    Case(
        "UnhealthyGpusUnreadable",
        "gpus names <entries>: expected minor numbers of GPUs, like 0,3",
        partial(_object, "ConfigMap v1", {}, name=f"{names.UNHEALTHY_CONFIGMAP_PREFIX}n", data={"gpus": "0,x"}),
        "correct gpushare's ConfigMap `unhealthy-gpu-NODE`; its other entries count",
    ),
]
SECTION = Section(
    "Values of gangs, classes, queues and namespaces",
    "These name what is wrong with an object. They follow the sentence of their code in Events and in `explain`, and "
    "objects of Gangshare show them in their status. A value of a gang that cannot be read counts as not set; an "
    "unreadable PodGroup declares no gang.",
    [*GANGS, *GROUPS, *CLASSES, *QUEUES, *OTHERS],
    "asked wrong",
)
