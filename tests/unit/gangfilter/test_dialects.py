"""Every dialect in which a pod names its group: the metadata that its operator or user writes, and what is read."""

from __future__ import annotations

from typing import Any

import pytest

from gangfilter.dialects import membership
from gangfilter.group import Declaration, GroupKey, Membership
from protos.contract import names
from tests.builders import a_pod

HIVED = "hivedscheduler.microsoft.com/pod-scheduling-spec"
HIVED_SPEC = """
virtualCluster: vc1
priority: 1000
pinnedCellId: null
leafCellType: V100
leafCellNumber: 4
affinityGroup:
  name: JOBX/GROUPX
  members:
  - podNumber: 1
    leafCellNumber: 4
  - podNumber: 2
    leafCellNumber: 8
"""
TASK_GROUPS = """[
  {"name": "ps", "minMember": 1, "minResource": {"cpu": "1", "memory": "2G"}, "affinity": {}, "tolerations": []},
  {"name": "worker", "minMember": 2, "minResource": {"cpu": "2", "nvidia.com/gpu": 1}}
]"""
MPI_LAUNCHER = {
    "batch.kubernetes.io/job-name": "mpi-launcher",
    "controller-uid": "8f0e",
    "job-name": "mpi-launcher",
    "training.kubeflow.org/job-name": "mpi",
    "training.kubeflow.org/job-role": "launcher",
    "training.kubeflow.org/operator-name": "mpi-operator",
}
MPI_WORKER = {
    "training.kubeflow.org/job-name": "mpi",
    "training.kubeflow.org/job-role": "worker",
    "training.kubeflow.org/operator-name": "mpi-operator",
    "training.kubeflow.org/replica-index": "0",
}
TFJOB = {"training.kubeflow.org/job-name": "tf", "training.kubeflow.org/operator-name": "tfjob-controller"}
NO_SIDECAR = {"sidecar.istio.io/inject": "false"}


def read(labels: dict[str, str], annotations: dict[str, str], **spec: Any) -> Membership | None:
    return membership(a_pod(labels=labels, annotations=annotations, namespace="ml", spec=spec))


def said(source: str, **fields: Any) -> Declaration:
    return Declaration(source=f"pods' {source}", **fields)


# fmt: off
CASES: dict[str, tuple[dict[str, str], dict[str, str], tuple[str, str, bool], Declaration | None]] = {
    "our own annotations": (
        {},
        {
            "gangshare.io/group": "g", "gangshare.io/min-member": "4", "gangshare.io/queue": "team-a",
            "gangshare.io/role": "Worker", "gangshare.io/min-member-by-role": '{"Launcher": 1, "worker": 3}',
            "gangshare.io/on-member-lost": "restart", "gangshare.io/on-completion": "launcher",
            "gangshare.io/schedule-timeout-seconds": "600",
        },
        ("g", "worker", False),
        said(
            "gangshare.io/*", min_member=4, min_by_role=(("launcher", 1), ("worker", 3)), queue="team-a",
            on_member_lost="restart", on_completion="launcher", schedule_timeout_s=600.0,
        ),
    ),
    "our own labels": (
        {"gangshare.io/group": "g", "gangshare.io/min-member": "4", "gangshare.io/queue": "team-a"}, {},
        ("g", "", False), said("gangshare.io/*", min_member=4, queue="team-a"),
    ),
    "kube-batch, worker of a TFJob v1beta1": (
        {
            "group-name": "kubeflow.org", "job-name": "tfjob-gang-scheduling", "tf-job-name": "tfjob-gang-scheduling",
            "tf-replica-index": "0", "tf-replica-type": "worker", "controller-name": "tf-operator",
        },
        {"scheduling.k8s.io/group-name": "tfjob-gang-scheduling"},
        ("tfjob-gang-scheduling", "worker", False), None,
    ),
    "kube-batch, parameter server of a TFJob v1beta1": (
        {"group-name": "kubeflow.org", "tf-job-name": "tfjob-gang-scheduling", "tf-replica-type": "ps"},
        {"scheduling.k8s.io/group-name": "tfjob-gang-scheduling"},
        ("tfjob-gang-scheduling", "ps", True), None,
    ),
    "kube-batch, the minimum as an annotation": (
        {}, {"scheduling.k8s.io/group-name": "qj-1", "scheduling.k8s.io/group-min-member": "6"},
        ("qj-1", "", False), said("scheduling.volcano.sh/*", min_member=6),
    ),
    "Volcano Job, parameter server": (
        {
            "volcano.sh/job-name": "tensorflow-dist-mnist", "volcano.sh/job-namespace": "ml",
            "volcano.sh/queue-name": "default", "volcano.sh/task-spec": "ps", "volcano.sh/task-index": "0",
        },
        {
            "scheduling.k8s.io/group-name": "tensorflow-dist-mnist-5d3e6a1c", "volcano.sh/task-spec": "ps",
            "volcano.sh/job-name": "tensorflow-dist-mnist", "volcano.sh/job-version": "0",
            "volcano.sh/queue-name": "default", "volcano.sh/task-index": "0", "volcano.sh/job-retry-count": "0",
            "volcano.sh/template-uid": "tensorflow-dist-mnist-ps",
        },
        ("tensorflow-dist-mnist-5d3e6a1c", "ps", True), said("scheduling.volcano.sh/*", queue="default"),
    ),
    "Volcano Job, MindSpore's master": (
        {"volcano.sh/job-name": "mindspore-gpu"},
        {"scheduling.k8s.io/group-name": "mindspore-gpu-77", "volcano.sh/task-spec": "mpimaster"},
        ("mindspore-gpu-77", "mpimaster", True), None,
    ),
    "Volcano, plain pods": (
        {},
        {
            "scheduling.volcano.sh/group-name": "plain", "scheduling.volcano.sh/group-min-member": "3",
            "scheduling.volcano.sh/group-min-resources": '{"cpu": "1500m", "nvidia.com/gpu": 3, "memory": "1Ki"}',
            "scheduling.volcano.sh/queue-name": "q1", "scheduling.volcano.sh/queue-allocation-gate": "true",
        },
        ("plain", "", False),
        said(
            "scheduling.volcano.sh/*", min_member=3, queue="q1",
            min_resources=(("cpu", 1500), ("memory", 1024), ("nvidia.com/gpu", 3)),
        ),
    ),
    "MPI Operator for Volcano, launcher": (
        MPI_LAUNCHER, {"scheduling.k8s.io/group-name": "mpi", **NO_SIDECAR}, ("mpi", "launcher", True), None,
    ),
    "MPI Operator for Volcano, worker": (
        MPI_WORKER, {"scheduling.k8s.io/group-name": "mpi", **NO_SIDECAR}, ("mpi", "worker", False), None,
    ),
    "MPI Operator for scheduler-plugins, launcher": (
        MPI_LAUNCHER | {"scheduling.x-k8s.io/pod-group": "mpi"}, NO_SIDECAR, ("mpi", "launcher", True), None,
    ),
    "MPI Operator for scheduler-plugins, worker": (
        MPI_WORKER | {"scheduling.x-k8s.io/pod-group": "mpi"}, NO_SIDECAR, ("mpi", "worker", False), None,
    ),
    "MPI Operator, its queue under the key of the group": (
        MPI_WORKER | {"scheduling.x-k8s.io/pod-group": "mpi"}, {"scheduling.volcano.sh/group-name": "test-queue"},
        ("mpi", "worker", False), said("scheduling.volcano.sh/*", queue="test-queue"),
    ),
    "MPI Operator v1, labels by hand": (
        {"mpi_job_name": "mpi", "mpi_role_type": "launcher"}, {"scheduling.k8s.io/group-name": "mpi"},
        ("mpi", "launcher", True), None,
    ),
    "training-operator for Volcano, worker 0 of a TFJob without chief": (
        TFJOB | {
            "training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0",
            "training.kubeflow.org/job-role": "master",
        },
        {"scheduling.k8s.io/group-name": "tf", "volcano.sh/task-spec": "worker"},
        ("tf", "worker", True), None,
    ),
    "training-operator for scheduler-plugins, chief of a TFJob": (
        TFJOB | {"scheduling.x-k8s.io/pod-group": "tf", "training.kubeflow.org/replica-type": "chief"}, {},
        ("tf", "chief", True), None,
    ),
    "trainer v2 for scheduler-plugins": (
        {"scheduling.x-k8s.io/pod-group": "trainjob", "jobset.sigs.k8s.io/jobset-name": "trainjob"}, {},
        ("trainjob", "", False), None,
    ),
    "scheduler-plugins before it had its own API group": (
        {"pod-group.scheduling.sigs.k8s.io": "nginx"}, {}, ("nginx", "", False), None,
    ),
    "lightweight coscheduling": (
        {"pod-group.scheduling.sigs.k8s.io/name": "nginx", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}, {},
        ("nginx", "", False), said("pod-group.scheduling.sigs.k8s.io/*", min_member=3),
    ),
    "Koordinator": (
        {},
        {
            "gang.scheduling.koordinator.sh/name": "gang-a", "gang.scheduling.koordinator.sh/min-available": "2",
            "gang.scheduling.koordinator.sh/total-number": "5", "gang.scheduling.koordinator.sh/waiting-time": "1m30s",
            "gang.scheduling.koordinator.sh/mode": "NonStrict",
            "gang.scheduling.koordinator.sh/groups": '["ml/gang-a"]',
            "gang.scheduling.koordinator.sh/match-policy": "once-satisfied",
        },
        ("gang-a", "", False), said("gang.scheduling.koordinator.sh/*", min_member=2),
    ),
    "Koordinator, only the total": (
        {}, {"gang.scheduling.koordinator.sh/name": "gang-a", "gang.scheduling.koordinator.sh/total-number": "5"},
        ("gang-a", "", False), said("gang.scheduling.koordinator.sh/*", min_member=5),
    ),
    "KAI": (
        {"kai.scheduler/queue": "team-a", "kai.scheduler/subgroup-name": "leaders"},
        {"pod-group-name": "pg-job-1", "kai.scheduler/batch-min-member": "4"},
        ("pg-job-1", "leaders", False), said("kai.scheduler/*", min_member=4, queue="team-a"),
    ),
    "Kueue, plain pods": (
        {"kueue.x-k8s.io/pod-group-name": "sample", "kueue.x-k8s.io/queue-name": "user-queue"},
        {"kueue.x-k8s.io/pod-group-total-count": "2", "kueue.x-k8s.io/retriable-in-group": "false"},
        ("sample", "", False), said("kueue.x-k8s.io/*", min_member=2),
    ),
    "YuniKorn": (
        {"applicationId": "app-1", "queue": "root.sandbox"},
        {"yunikorn.apache.org/task-group-name": "worker", "yunikorn.apache.org/task-groups": TASK_GROUPS},
        ("app-1", "worker", False),
        said("yunikorn.apache.org/*", min_by_role=(("ps", 1), ("worker", 2)), queue="root.sandbox"),
    ),
    "YuniKorn, a member that is not the first": (
        {"applicationId": "app-1"}, {"yunikorn.apache.org/task-group-name": "worker"}, ("app-1", "worker", False), None,
    ),
    "Gödel": (
        {"godel.bytedance.com/pod-group-name": "nginx"}, {"godel.bytedance.com/pod-group-name": "nginx"},
        ("nginx", "", False), None,
    ),
    "HiveD": (
        {}, {HIVED: HIVED_SPEC}, ("JOBX/GROUPX", "", False),
        said("hivedscheduler.microsoft.com/*", min_member=3, queue="vc1"),
    ),
    "ET-operator, worker": (
        {
            "group-name": "kai.alibabacloud.com", "training-job-name": "elastic", "training-job-role": "worker",
            "replica-index": "1",
        },
        {}, ("elastic", "worker", False), None,
    ),
    "ET-operator, launcher, which comes when all workers run": (
        {"group-name": "kai.alibabacloud.com", "training-job-name": "elastic", "training-job-role": "launcher"}, {},
        ("elastic", "launcher", False), None,
    ),
}
# fmt: on


@pytest.mark.parametrize("case", CASES)
def test_a_member_is_known_by(case: str) -> None:
    labels, annotations, (group, role, required), declaration = CASES[case]
    found = read(labels, annotations)
    assert found == Membership(GroupKey("ml", group), role, required, declaration, leader=found.leader if found else "")


def test_a_member_is_known_by_kubernetes_own_fields() -> None:
    found = read({}, {}, schedulingGroup={"podGroupName": "pg"})
    assert found == Membership(GroupKey("ml", "pg"))
    found = read({}, {}, workloadRef={"name": "w", "podGroup": "workers", "podGroupReplicaKey": "0"})
    assert found == Membership(GroupKey("ml", "w/workers/0"))


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({}, {}),
        ({"app": "web"}, {"prometheus.io/scrape": "true"}),
        ({"scheduling.x-k8s.io/pod-group": ""}, {"scheduling.k8s.io/group-name": " "}),
        ({"gangshare.io/queue": "team-a", "kai.scheduler/queue": "team-a", "kueue.x-k8s.io/queue-name": "q"}, {}),
        ({"training-job-name": "j", "group-name": "kubeflow.org"}, {}),
        ({"spark-role": "driver"}, {"yunikorn.apache.org/task-groups": TASK_GROUPS}),
        ({"kueue.x-k8s.io/pod-group-name": "lws"}, {"kueue.x-k8s.io/pod-group-serving": "true"}),
        ({"kueue.x-k8s.io/pod-group-name": "sts"}, {"kueue.x-k8s.io/pod-group-fast-admission": "true"}),
        ({}, {HIVED: "virtualCluster: vc1\nleafCellNumber: 1\n"}),
        ({}, {HIVED: "leafCellNumber: 1\naffinityGroup: null\n"}),
    ],
    ids=[
        "no metadata", "others' metadata", "empty names", "queues alone", "another operator's labels", "Spark",
        "Kueue's LeaderWorkerSet", "Kueue's StatefulSet", "HiveD without a group", "HiveD with no group",
    ],
)  # fmt: skip
def test_no_group_is_named_by(labels: dict[str, str], annotations: dict[str, str]) -> None:
    assert read(labels, annotations) is None


@pytest.mark.parametrize(
    ("labels", "annotations", "problem"),
    [
        ({}, {"gangshare.io/group": " "}, "annotation gangshare.io/group is empty: expected the name of a group"),
        ({"gangshare.io/group": ""}, {}, "label gangshare.io/group is empty: expected the name of a group"),
        (
            {},
            {"gangshare.io/min-member-by-role": '{"worker": 2}'},
            "annotation gangshare.io/min-member-by-role is set, but no group is named: expected gangshare.io/group too",
        ),
        (
            {"gangshare.io/role": "worker"},
            {},
            "label gangshare.io/role is set, but no group is named: expected gangshare.io/group too",
        ),
        (
            {},
            {"scheduling.x-k8s.io/pod-group": "g"},
            "annotation scheduling.x-k8s.io/pod-group names no group: expected it as label",
        ),
        (
            {"scheduling.k8s.io/group-name": "g"},
            {},
            "label scheduling.k8s.io/group-name names no group: expected it as annotation",
        ),
        ({"pod-group-name": "g"}, {}, "label pod-group-name names no group: expected it as annotation"),
    ],
)
def test_a_pod_that_says_something_of_its_group_and_names_none_waits(
    labels: dict[str, str], annotations: dict[str, str], problem: str
) -> None:
    assert read(labels, annotations) == Membership(GroupKey("ml", ""), problems=(problem,))


def test_a_pod_that_runs_is_not_asked_for_the_name_of_its_group() -> None:
    assert read({"gangshare.io/role": "worker"}, {}, nodeName="n") is None


def test_where_annotation_and_label_differ_the_annotation_holds_and_it_is_told() -> None:
    found = read({"gangshare.io/min-member": "3"}, {"gangshare.io/group": "g", "gangshare.io/min-member": "2"})
    assert found is not None
    assert found.declaration is not None
    assert found.declaration.min_member == 2
    assert found.problems == (
        "annotation gangshare.io/min-member is '2', label gangshare.io/min-member '3': the first holds",
    )


def test_our_own_keys_add_to_every_dialect() -> None:
    found = read(
        {"scheduling.x-k8s.io/pod-group": "mpi"},
        {"gangshare.io/on-member-lost": "restart", "gangshare.io/role": "chief"},
    )
    assert found == Membership(GroupKey("ml", "mpi"), "chief", True, said("gangshare.io/*", on_member_lost="restart"))


def test_two_dialects_that_name_one_group_are_both_read_and_the_stricter_holds() -> None:
    found = read(
        {"scheduling.x-k8s.io/pod-group": "g", "kueue.x-k8s.io/pod-group-name": "g"},
        {"gangshare.io/min-member": "3", "kueue.x-k8s.io/pod-group-total-count": "4"},
    )
    assert found is not None
    assert found.declaration is not None
    assert found.declaration.min_member == 4
    assert found.problems == ("the minimum differs: 3 by pods' gangshare.io/*, 4 by pods' kueue.x-k8s.io/*; 4 holds",)


def test_the_first_of_two_groups_is_taken_and_the_other_is_told_and_not_read() -> None:
    found = read(
        {"kueue.x-k8s.io/pod-group-name": "b"},
        {"scheduling.k8s.io/group-name": "a", "kueue.x-k8s.io/pod-group-total-count": "many"},
    )
    assert found == Membership(
        GroupKey("ml", "a"),
        problems=(
            "annotation scheduling.k8s.io/group-name names group a, "
            "label kueue.x-k8s.io/pod-group-name names b: a is taken",
        ),
    )


def test_only_an_mpi_job_misuses_the_key_of_volcanos_group() -> None:
    found = read({"scheduling.x-k8s.io/pod-group": "b"}, {"scheduling.volcano.sh/group-name": "a"})
    assert found is not None
    assert found.key.name == "a"
    assert len(found.problems) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (names.QUEUE, "research"), (names.ROLE, "worker"), (names.MIN_MEMBER, "3"), (names.ON_MEMBER_LOST, "restart"),
        (names.ON_COMPLETION, "launcher"), (names.SCHEDULE_TIMEOUT_SECONDS, "600"), (names.EXPECTED_RUNTIME, "2h30m"),
        (names.ELASTIC, "true"), ("volcano.sh/queue-name", "research"), ("volcano.sh/task-spec", "worker"),
    ],
)  # fmt: skip
def test_a_key_of_ours_says_the_same_as_annotation_and_as_label(key: str, value: str) -> None:
    group = {names.GROUP: "g"}
    assert read({**group, key: value}, {}) == read({}, {**group, key: value}) != read(group, {})


@pytest.mark.parametrize("labels", [MPI_WORKER, {"mpi_job_name": "mpi", "mpi_role_type": "worker"}])
def test_a_worker_of_an_mpi_job_may_be_waited_for_by_its_launcher(labels: dict[str, str]) -> None:
    named = {"scheduling.k8s.io/group-name": "mpi"}
    worker, launcher = read(labels, named), read(MPI_LAUNCHER, named)
    other = read(TFJOB | {"training.kubeflow.org/job-role": "worker"}, named)
    assert [found and found.leader for found in (worker, launcher, other)] == ["launcher", "", ""]


def test_bundles_of_gangs_are_refused_with_a_sentence() -> None:
    found = read(
        {},
        {
            "gang.scheduling.koordinator.sh/name": "a",
            "gang.scheduling.koordinator.sh/groups": '["ml/a", "ml/b"]',
        },
    )
    assert found is not None
    assert found.problems == (
        """annotation gang.scheduling.koordinator.sh/groups is '["ml/a", "ml/b"]': """
        "expected at most one group: each starts by itself",
    )


def test_who_says_how_large_its_group_is_but_not_which_waits_in_the_nameless_group() -> None:
    assert read({}, {"gangshare.io/min-member": "3"}) == Membership(
        GroupKey("ml", ""),
        problems=("annotation gangshare.io/min-member is set, but no group is named: expected gangshare.io/group too",),
    )


def test_a_task_group_of_no_application_waits_in_the_nameless_group() -> None:
    found = read({}, {"yunikorn.apache.org/task-group-name": "worker"})
    assert found is not None
    assert found.key == GroupKey("ml", "")
    assert found.problems == ("label applicationId is missing: expected the application whose task group this is",)


@pytest.mark.parametrize(("index", "role"), [("0", "leader"), ("1", "worker"), ("12", "worker")])
def test_a_pod_of_a_leaderworkerset_has_its_role_by_its_index(index: str, role: str) -> None:
    labels = {"leaderworkerset.sigs.k8s.io/worker-index": index}
    found = membership(a_pod("p", labels=labels, annotations={"scheduling.k8s.io/group-name": "lws-0"}))
    assert found is not None
    assert (found.role, found.required) == (role, False)
