"""The objects that declare a group: as their operators write them, and malformed ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangfilter.group import Declaration, GroupKey
from gangfilter.podgroups import KINDS, Kind, PodGroupError, declaration

KIND = {f"{kind.api_group}/{kind.version}": kind for kind in KINDS}
VOLCANO = KIND["scheduling.volcano.sh/v1beta1"]
COSCHEDULING = KIND["scheduling.x-k8s.io/v1alpha1"]
OWN = KIND["gangshare.io/v1alpha1"]


def declared(kind: Kind, spec: Any, **annotations: str) -> Declaration:
    owner = {"apiVersion": "x/v1", "kind": "X", "name": "g", "uid": "1", "controller": True}
    metadata = {"name": "g", "namespace": "ml", "annotations": annotations, "ownerReferences": [owner]}
    body = {"apiVersion": f"{kind.api_group}/{kind.version}", "kind": kind.kind, "metadata": metadata, "spec": spec}
    key, found = declaration(kind, msgspec.json.encode(body | {"status": {"phase": "Pending"}}))
    assert key == GroupKey("ml", "g")
    assert found.source == f"{kind.kind} {kind.api_group}/{kind.version}"
    return found


def said(kind: Kind, **fields: Any) -> Declaration:
    return Declaration(source=f"{kind.kind} {kind.api_group}/{kind.version}", **fields)


def test_no_two_rows_are_the_same_kind() -> None:
    assert len({(kind.api_group, kind.version, kind.plural) for kind in KINDS}) == len(KINDS)


def test_our_own_says_all_there_is() -> None:
    spec = {
        "minMember": 3, "minTaskMember": {"Launcher": 1, "worker": 2, "logger": 0}, "queue": "team-a",
        "minResources": {"cpu": "1500m", "memory": "1Gi", "gangshare.io/gpu-mem": 48, "rdma/hca": "0"},
        "priorityClassName": "high", "scheduleTimeoutSeconds": 180, "onMemberLost": "restart",
        "onCompletion": "Launcher",
    }  # fmt: skip
    assert declared(OWN, spec) == said(
        OWN, min_member=3, min_by_role=(("launcher", 1), ("worker", 2)), queue="team-a", priority_class="high",
        min_resources=(("cpu", 1500), ("gangshare.io/gpu-mem", 48), ("memory", 2**30)),
        schedule_timeout_s=180.0, on_member_lost="restart", on_completion="launcher",
    )  # fmt: skip


def test_a_volcano_job_declares_its_tasks() -> None:
    spec = {
        "minMember": 4, "minTaskMember": {"ps": 2, "worker": 2}, "queue": "default", "priorityClassName": "",
        "minResources": {"cpu": "4", "pods": "4", "count/pods": "4", "requests.cpu": "5", "limits.memory": "8Gi"},
    }  # fmt: skip
    assert declared(VOLCANO, spec) == said(
        VOLCANO, min_member=4, min_by_role=(("ps", 2), ("worker", 2)), queue="default",
        min_resources=(("cpu", 5000),),
    )  # fmt: skip


def test_of_a_volcano_job_that_may_start_smaller_only_the_minimum_counts() -> None:
    found = declared(VOLCANO, {"minMember": 3, "minTaskMember": {"ps": 2, "worker": 2}})
    assert found == said(VOLCANO, min_member=3)
    found = declared(VOLCANO, {"minTaskMember": {"ps": 2, "worker": 2}})
    assert found == said(VOLCANO, min_by_role=(("ps", 2), ("worker", 2)))


def test_mpi_operator_makes_both_forms_of_one_policy() -> None:
    resources = {"cpu": "3000m"}
    volcano = {"minMember": 10, "queue": "test-queue", "minResources": resources, "priorityClassName": "high"}
    assert declared(VOLCANO, volcano) == said(
        VOLCANO, min_member=10, queue="test-queue", min_resources=(("cpu", 3000),), priority_class="high"
    )
    coscheduling = {"minMember": 10, "minResources": resources, "scheduleTimeoutSeconds": 180}
    assert declared(COSCHEDULING, coscheduling) == said(COSCHEDULING, min_member=10, min_resources=(("cpu", 3000),))


@pytest.mark.parametrize("api_group", ["scheduling.x-k8s.io", "scheduling.sigs.k8s.io", "scheduling.incubator.k8s.io"])
def test_how_long_others_wait_in_permit_is_no_limit_of_waiting(api_group: str) -> None:
    kind = KIND[f"{api_group}/v1alpha1"]
    assert declared(kind, {"minMember": 3, "scheduleTimeoutSeconds": 60}) == said(kind, min_member=3)


@pytest.mark.parametrize("api_group", ["gangshare.io", "scheduling.godel.kubewharf.io"])
def test_a_limit_of_waiting_is_read_where_it_means_that(api_group: str) -> None:
    kind = KIND[f"{api_group}/v1alpha1"]
    limited = {"minMember": 3, "scheduleTimeoutSeconds": 60}
    assert declared(kind, limited) == said(kind, min_member=3, schedule_timeout_s=60.0)
    assert declared(kind, limited | {"scheduleTimeoutSeconds": 0}) == said(kind, min_member=3)


@pytest.mark.parametrize(
    "api_group", ["scheduling.incubator.k8s.io", "scheduling.sigs.k8s.io", "scheduling.godel.kubewharf.io"]
)
def test_the_older_and_plainer_kinds(api_group: str) -> None:
    kind = KIND[f"{api_group}/v1alpha1"]
    assert declared(kind, {"minMember": 2}) == said(kind, min_member=2)


def test_kais_innermost_sub_groups_are_roles() -> None:
    kind = KIND["scheduling.run.ai/v2alpha2"]
    spec = {
        "minMember": 3, "queue": "team-a", "priorityClassName": "train", "markUnschedulable": False,
        "subGroups": [
            {"name": "all", "minSubGroup": 2}, {"name": "leader", "parent": "all", "minMember": 1},
            {"name": "workers", "parent": "all", "minMember": 2},
        ],
    }  # fmt: skip
    assert declared(kind, spec) == said(
        kind, min_member=3, min_by_role=(("leader", 1), ("workers", 2)), queue="team-a", priority_class="train"
    )


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3", "v1alpha2"])
def test_kubernetes_own_pod_groups(version: str) -> None:
    kind = KIND[f"scheduling.k8s.io/{version}"]
    gang = {"schedulingPolicy": {"gang": {"minCount": 4}}, "priorityClassName": "high"}
    assert declared(kind, gang) == said(kind, min_member=4, priority_class="high")
    assert declared(kind, {"schedulingPolicy": {"basic": {}}}) == said(kind, min_member=1)


def test_an_elastic_job_starts_with_the_workers_that_its_launcher_waits_for_and_needs_fewer_then() -> None:
    kind = KIND["kai.alibabacloud.com/v1alpha1"]
    worker = {"replicas": 2, "minReplicas": 1, "maxReplicas": 9, "template": {}}
    found = declared(kind, {"cleanPodPolicy": "Running", "etReplicaSpecs": {"launcher": {}, "worker": worker}})
    least, lasting = (("worker", 2),), (("worker", 1),)
    assert found == said(kind, min_by_role=least, lasting_by_role=lasting, on_member_lost="ignore", elastic=True)


def test_a_minimum_that_is_not_said_is_unknown_and_one_of_zero_is_each_alone() -> None:
    assert declared(COSCHEDULING, {}).min_member is None
    assert declared(COSCHEDULING, {"minMember": 0}).min_member == 1


def test_our_annotations_on_any_kind_count() -> None:
    written = {
        "gangshare.io/on-member-lost": "restart", "gangshare.io/min-member": "4",
        "gangshare.io/schedule-timeout-seconds": "soon",
    }  # fmt: skip
    assert declared(VOLCANO, {"minMember": 3}, **written) == said(
        VOLCANO, min_member=4, on_member_lost="restart",
        problems=(
            "annotation gangshare.io/schedule-timeout-seconds is 'soon': expected a whole number of seconds",
            "the minimum differs: 3 by PodGroup scheduling.volcano.sh/v1beta1, "
            "4 by its annotations gangshare.io/*; 4 holds",
        ),
    )  # fmt: skip


def test_a_misspelt_annotation_of_a_pod_group_is_a_problem_of_the_gang() -> None:
    written = {"gangshare.io/min-memebr": "4", "gangshare.io/gpu-model": "A100"}
    told = "annotation gangshare.io/min-memebr is not known to Gangshare: did you mean gangshare.io/min-member?"
    assert declared(VOLCANO, {"minMember": 3}, **written) == said(VOLCANO, min_member=3, problems=(told,))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"minMember": -1}, "spec.minMember is -1: expected a whole number from 0 to 150000"),
        ({"minMember": 2**40}, "spec.minMember is 1099511627776: expected a whole number from 0 to 150000"),
        ({"queue": "q" * 300}, "spec.queue is 'qqqqqqqq"),
        ({"priorityClassName": "\x1b[2J"}, "spec.priorityClassName is '\\x1b[2J': expected a name of at most 253"),
        ({"minMember": "3"}, "Expected `int | null`, got `str` - at `$.minMember`"),
        ({"scheduleTimeoutSeconds": -5}, "spec.scheduleTimeoutSeconds is -5: expected a whole number of seconds"),
        (
            {"minTaskMember": {"ps": -1}},
            "spec.minTaskMember: expected members by role, each from 0 to",
        ),
        (
            {"minResources": {"cpu": "lots"}},
            "spec.minResources: expected amounts by resource; 'cpu': 'lots' is",
        ),
        ({"minResources": {"cpu": "-1"}}, "spec.minResources: expected amounts of zero or more; 'cpu' is '-1'"),
        ({"onMemberLost": "panic"}, "spec.onMemberLost is 'panic': expected wait, restart or ignore"),
        ("text", "Expected `object`, got `str`"),
    ],
)
def test_a_spec_that_makes_no_sense_is_told_with_its_group(spec: Any, sentence: str) -> None:
    with pytest.raises(PodGroupError) as raised:
        declared(OWN, spec)
    assert str(raised.value).startswith(f"PodGroup gangshare.io/v1alpha1 ml/g: spec cannot be read: {sentence}")
    assert raised.value.key == GroupKey("ml", "g")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"metadata": {}}', b'{"spec":' + b"[" * 100_000])
def test_what_is_no_object_at_all_is_told(data: bytes) -> None:
    with pytest.raises(PodGroupError, match=r"^PodGroup gangshare\.io/v1alpha1 cannot be read: ") as raised:
        declaration(OWN, data)
    assert raised.value.key is None
