"""What somebody with `edit` in one namespace sees with kubectl and our commands when a pod asks for the wrong thing."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from protos.contract import names
from tests.cluster import bare, front
from tests.cluster.api import Json
from tests.cluster.bare import a_node_of
from tests.cluster.cluster import Cluster
from tests.cluster.front import User
from tests.cluster.gangshare import Gangshare, a_gpu_pod
from tests.cluster.process import wait_for
from tests.scenarios import commands

pytestmark = pytest.mark.core
MINE = "team-a"
MANIFESTS = Path(__file__).parents[2] / "manifests"
SAMPLE = MANIFESTS / "samples/gangs/01-annotations.yaml"
H100, T4 = "NVIDIA H100 80GB HBM3", "Tesla T4"


@pytest.fixture(scope="module")
def cluster(able_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four H100 on one node, two T4 on another, one of each on a third."""
    with front.up(tmp_path_factory.mktemp("front")) as running:
        for node in (a_node_of("four", *[H100] * 4), a_node_of("two", T4, T4), a_node_of("both", H100, T4)):
            running.api.post(bare.NODES, node)
        running.apply(MANIFESTS / "components" / "fake" / "runtimeclass.yaml")  # samples name it
        running.kubectl("create", "namespace", MINE)
        yield running


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    """Those who have only begun to run may be evicted."""
    made = front.share(cluster, ["--min-runtime=0", f"--scheduler-names={names.PROFILE}"])
    front.wait_available(cluster)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def everybody(cluster: Cluster, sharing: Gangshare) -> User:
    return User(cluster, "ada", MINE)


@pytest.fixture
def ada(cluster: Cluster, everybody: User) -> Iterator[User]:
    """Ada, whose namespace is empty again afterwards."""
    yield everybody
    everybody.kubectl("delete", "jobs", "--all", "--cascade=background", "--wait=false")
    everybody.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
    wait_for(lambda: not cluster.pods(MINE), 30, "an empty namespace")


def asking(name: str, limits: Mapping[str, str] | None = None, **more: Any) -> Json:
    """A pod of Ada's, which asks these limits or as `a_gpu_pod` says."""
    pod = front.in_namespace(MINE, a_gpu_pod(name, terminationGracePeriodSeconds=0, **more))
    if limits is not None:
        pod["spec"]["containers"][0]["resources"] = {"limits": dict(limits)}
    return pod


def node_of(cluster: Cluster, name: str) -> str:
    found: str = cluster.pod(name, MINE)["spec"].get("nodeName", "")
    return found


def bound(cluster: Cluster, *wanted: str) -> list[str]:
    """The nodes of these pods, once all have one."""

    def all_bound() -> list[str]:
        nodes = [node_of(cluster, name) for name in wanted]
        assert all(nodes), nodes
        return nodes

    return wait_for(all_bound, 60, f"{', '.join(wanted)} on nodes")


def unbound(cluster: Cluster, *wanted: str) -> bool:
    return not any(node_of(cluster, name) for name in wanted)


# -- keys and units


@pytest.mark.parametrize(
    ("limits", "annotations", "code", "words"),
    [
        (
            {names.GPU_MEM: "4"},
            {"gangshare.io/gpu-modle": "T4"},
            "UnknownKey",
            "annotation gangshare.io/gpu-modle is not known to Gangshare",
        ),
        ({"gangshare.io/gpu-memory": "4"}, {}, "UnknownKey", "did you mean gangshare.io/gpu-mem?"),
        ({names.GPU_MEM: "10Gi"}, {}, "AskUnit", "write gangshare.io/gpu-mem: 10"),
    ],
    ids=["a misspelt annotation", "a misspelt limit", "memory with its unit"],
)
def test_a_mistake_is_warned_of_and_its_pod_waits_with_an_event_that_says_what_to_write(
    cluster: Cluster, ada: User, limits: dict[str, str], annotations: dict[str, str], code: str, words: str
) -> None:
    """Such pods ran silently on the wrong hardware; `10Gi` was everybody's first try."""
    warned = ada.apply(asking("wrong", limits, annotations=annotations))
    assert warned.startswith("Warning:")
    assert words in warned
    assert words in ada.told("wrong", code)
    assert words in ada.why("gpupods", "wrong")
    assert unbound(cluster, "wrong")


# -- never, or not yet


def test_what_can_never_run_is_told_apart_from_what_waits_and_asks_nothing_of_its_queue(
    cluster: Cluster, ada: User
) -> None:
    """What can never run looked like what waits, and inflated the demand of its queue."""
    ada.apply(asking("first", whole=4))
    bound(cluster, "first")
    ada.apply(asking("huge", whole=64), asking("late", whole=4))
    assert "four comes nearest with 4 such GPUs" in ada.told("huge", "CannotFit")
    assert "4 whole GPUs" in ada.told("late", "NoRoom")
    assert ada.why("gpupods", "huge").startswith("no node in the cluster could fit 64 whole GPUs")
    assert ada.why("gpupods", "late").startswith("no node with 4 whole GPUs free")
    assert "can never run" in ada.gangshare("explain", "pod", "huge", "-n", MINE).out
    assert "waits for free GPUs (NoRoom)" in ada.gangshare("explain", "pod", "late", "-n", MINE).out
    queue = yaml.safe_load(ada.kubectl("get", "gpuqueue", "default", "-o", "yaml"))["status"]
    assert (queue["allocated"]["gpus"], queue["requested"]["gpus"], queue["waiting"]) == ("4", "8", 2)


@pytest.mark.parametrize(
    ("pod", "code", "words"),
    [
        (asking("odd", mem=2, nodeSelector={"pool": "none"}), "Unschedulable", "didn't match Pod's node affinity"),
        (asking("odd", {names.GPU_MEM: "2", "cpu": "500"}), "CannotFit", "comes nearest with 192 cpu"),
        (asking("odd", {names.GPU_MEM: "2", "amd.com/gpu": "1"}), "Unschedulable", "Insufficient amd.com/gpu"),
        (asking("odd", mem=2, schedulerName="default-scheduler"), "OtherScheduler", "is default-scheduler"),
        (asking("odd", mem=2, annotations={names.GPU_MODEL: "H10O"}), "NoMatch", "did you mean H100?"),
        (asking("odd", mem=2, annotations={names.MIN_MEMBER: "2"}), "GangUnnamed", "expected gangshare.io/group too"),
    ],
    ids=["a label", "CPUs", "another's resource", "another scheduler", "a model", "a minimum without a gang"],
)
def test_a_pending_pod_is_explained_with_what_it_lacks(ada: User, pod: Json, code: str, words: str) -> None:
    """`explain pod` gave up where it should join what kube-scheduler knows."""
    ada.apply(copy.deepcopy(pod))

    def told() -> bool:
        status = json.loads(ada.kubectl("get", "gpupod", "odd", "-o", "json"))["status"]
        assert status["code"] == code, status
        assert words in json.dumps(status)
        return True

    wait_for(told, 60, f"an explanation with {code}")


def test_a_model_is_named_as_people_name_it(cluster: Cluster, ada: User) -> None:
    """`gpu-model: A100` matched nothing, as drivers say `NVIDIA A100-SXM4-80GB`."""
    ada.apply(asking("t", mem=2, annotations={names.GPU_MODEL: "T4"}), asking("h", whole=3))
    assert bound(cluster, "t", "h") in (["two", "four"], ["both", "four"])


# -- one model


def test_the_gpus_of_a_container_are_of_one_model_unless_it_allows_several(cluster: Cluster, ada: User) -> None:
    """A worker with two GPUs got two models."""
    here = {"kubernetes.io/hostname": "both"}
    ada.apply(asking("kept", whole=2, nodeSelector=here))
    ada.told("kept", "FailedScheduling")
    ada.apply(asking("any", whole=2, nodeSelector=here, annotations={names.MIXED_MODELS: "allow"}))
    bound(cluster, "any")
    assert unbound(cluster, "kept")


def a_gang(name: str, count: int, least: int, **annotations: str) -> list[Json]:
    wishes = {names.GROUP: name, names.MIN_MEMBER: str(least), **annotations}
    return [asking(f"{name}-{i}", whole=1, annotations=wishes) for i in range(count)]


def called(gang: list[Json]) -> list[str]:
    return [pod["metadata"]["name"] for pod in gang]


def test_a_gang_that_fits_on_several_models_only_says_so_and_starts_when_it_allows_them(
    cluster: Cluster, ada: User
) -> None:
    """Members of a gang got several models."""
    gang = a_gang("mixed", 6, 6)
    ada.apply(*gang)
    assert "gangshare.io/mixed-models: allow permits" in ada.told("mixed-0", "GangMixedModels")
    assert "several models" in ada.why("gangs", "mixed")
    assert "(GangMixedModels)" in ada.gangshare("explain", "group", "mixed", "-n", MINE).out
    assert unbound(cluster, *called(gang))
    ada.kubectl("annotate", "pods", *called(gang), f"{names.MIXED_MODELS}=allow")
    assert len({*bound(cluster, *called(gang))}) > 1


# -- the names of gangs


def a_job(name: str, gang: str, count: int) -> Json:
    """A Job whose pods start as a gang."""
    pod = asking(name, mem=2, annotations={names.GROUP: gang, names.MIN_MEMBER: str(count)})
    template = {"metadata": {"annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}
    spec = {"parallelism": count, "completions": count, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def test_a_sample_that_names_a_running_gang_does_not_join_it_silently(cluster: Cluster, ada: User) -> None:
    """A sample joined a running gang of the same name, and its real workers became surplus."""
    sample = list(yaml.safe_load_all(SAMPLE.read_text()))
    name = sample[0]["metadata"]["annotations"][names.GROUP]
    ada.apply(a_job("train", name, 3))
    wait_for(partial(workers_are_bound, cluster, 3), 60, "the Job's pods on nodes")
    ada.apply(*sample)
    told = ada.told(called(sample)[0], "GangTaken")
    assert "the gang has pods of Job train; this pod is of no controller" in told
    assert "this pod waits until they have ended or a PodGroup declares the gang" in ada.why(
        "gpupods", called(sample)[0]
    )
    assert ada.kubectl("get", "gangs").splitlines()[1].split()[:2] == [name, "Running"]
    assert unbound(cluster, *called(sample))
    assert workers_are_bound(cluster, 3), "nobody was evicted"


def workers_are_bound(cluster: Cluster, count: int) -> bool:
    pods = cluster.pods(MINE, "job-name=train")
    return [bool(pod["spec"].get("nodeName")) for pod in pods] == [True] * count


@pytest.mark.parametrize("elastic", ["false", "true"])
def test_members_beyond_the_minimum_yield_at_equal_priority_only_if_their_gang_says_elastic(
    cluster: Cluster, ada: User, elastic: str
) -> None:
    """Running work was evicted at equal priority, though its gang was not elastic.

    Of five H100 four are in use by a gang of which two are enough, and another gang wants three.
    """
    h100 = {names.GPU_MODEL: "H100"}
    runs, wants = a_gang("runs", 4, 2, **h100, **{names.ELASTIC: elastic}), a_gang("wants", 3, 3, **h100)
    ada.apply(*runs)
    bound(cluster, *called(runs))
    ada.apply(*wants)
    if elastic == "true":
        bound(cluster, *called(wants))
        wait_for(lambda: "preempts surplus members of gangs" in ada.kubectl("get", "events"), 30, "its Event")
    else:
        assert "short by 2" in ada.told("wants-0", "GangNoRoom")
        ada.apply(asking("later", whole=1))
        bound(cluster, "later")
        assert unbound(cluster, *called(wants))
    left = {pod["metadata"]["name"] for pod in cluster.pods(MINE)} & {*called(runs)}
    assert len(left) == (2 if elastic == "true" else 4)


# -- the commands


def test_a_user_sees_queues_and_their_pods_and_not_the_whole_cluster(cluster: Cluster, ada: User) -> None:
    """Users reached the commands by a port-forward alone, which sees all tenants."""
    ada.apply(asking("first", whole=1))
    bound(cluster, "first")
    assert "default" in ada.gangshare("queues").out
    assert "GPU 0" in ada.gangshare("explain", "pod", "first", "-n", MINE).out
    refused = ada.gangshare("top")
    assert refused.code == 1
    assert "the API server refuses" in refused.err
    assert 'User "ada" cannot list' in refused.err


def test_top_queues_explain_and_metrics_count_the_same_pending_pods(
    cluster: Cluster, sharing: Gangshare, ada: User
) -> None:
    """There were four answers to "how many wait" at one moment."""
    ada.apply(*a_gang("waits", 3, 4), asking("huge", whole=64), asking("greedy", {"cpu": "500"}))
    for name, code in (("waits-0", "GangAssembling"), ("huge", "CannotFit"), ("greedy", "FailedScheduling")):
        ada.told(name, code)
    assert sharing.pair.metric("gangshare_pending_pods") == 5
    assert "(5 pending pods)" in ada.gangshare("explain", "pod", "huge", "-n", MINE).out
    assert "(5 pending pods)" in ada.gangshare("explain", "group", "waits", "-n", MINE).out
    assert json.loads(ada.gangshare("queues", "-o", "json").out)["queues"][0]["waiting"] == 5
    assert json.loads(ada.kubectl("get", "gpuqueue", "default", "-o", "json"))["status"]["waiting"] == 5
    everything = {"KUBECONFIG": str(cluster.kubeconfig)}
    assert "5 pods pending" in commands.run("top", env=everything).out
