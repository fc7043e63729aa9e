"""`gangshare whatif`: which pods a file would make, and how the answer is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli import inspection, manifests
from extender.cli.errors import CommandError
from extender.wire import whatif as wire
from protos.contract import names
from protos.contract.bounds import WHAT_IF_BODY
from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import Ran, gangshare

SPEC = {"containers": [{"name": "main", "resources": {"limits": {names.GPU_MEM: "4"}}}]}
TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": SPEC}


def an_object(version: str, kind: str, spec: Any, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x", **metadata}, "spec": spec}


def found(*objects: Any, gang: bool = False) -> manifests.Found:
    return manifests.read(yaml.safe_dump_all(objects), "FILE", "team-a", gang=gang)


def counts(*objects: Any) -> dict[str, int]:
    """How many pods of each name."""
    return {each["template"]["metadata"]["name"]: each["count"] for each in found(*objects).pods}


WORKERS = {"Master": {"template": TEMPLATE}, "Worker": {"replicas": 3, "template": TEMPLATE}}
RAY = {
    "headGroupSpec": {"template": TEMPLATE},
    "workerGroupSpecs": [{"groupName": "gpu", "replicas": 2, "template": TEMPLATE}],
}
A_JOB = {"parallelism": 4, "template": TEMPLATE}
KINDS: list[tuple[dict[str, Any], dict[str, int]]] = [
    (an_object("v1", "Pod", SPEC), {"x": 1}),
    (an_object("batch/v1", "Job", A_JOB), {"x": 4}),
    (an_object("batch/v1", "Job", {"template": TEMPLATE}), {"x": 1}),
    (an_object("batch/v1", "Job", A_JOB | {"completions": 2}), {"x": 2}),
    (an_object("batch/v1", "CronJob", {"jobTemplate": {"spec": A_JOB}}), {"x": 4}),
    (an_object("apps/v1", "Deployment", {"replicas": 2, "template": TEMPLATE}), {"x": 2}),
    (an_object("apps/v1", "StatefulSet", {"template": TEMPLATE}), {"x": 1}),
    (an_object("apps/v1", "ReplicaSet", {"replicas": 3, "template": TEMPLATE}), {"x": 3}),
    (an_object("v1", "ReplicationController", {"replicas": 3, "template": TEMPLATE}), {"x": 3}),
    (
        an_object(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": A_JOB}}]},
        ),
        {"x-workers": 8},
    ),
    (an_object("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": WORKERS}), {"x-master": 1, "x-worker": 3}),
    (an_object("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": WORKERS}), {"x-master": 1, "x-worker": 3}),
    (an_object("kubeflow.org/v1", "TFJob", {"tfReplicaSpecs": WORKERS}), {"x-master": 1, "x-worker": 3}),
    (
        an_object("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"name": "ps", "replicas": 2, "template": TEMPLATE}]}),
        {"x-ps": 2},
    ),
    (an_object("ray.io/v1", "RayCluster", RAY), {"x": 1, "x-gpu": 2}),
    (an_object("ray.io/v1", "RayJob", {"rayClusterSpec": RAY}), {"x": 1, "x-gpu": 2}),
    (an_object("v1", "List", None) | {"items": [an_object("v1", "Pod", SPEC)]}, {"x": 1}),
]


@pytest.mark.parametrize(("made", "expected"), KINDS, ids=[made["kind"] for made, _ in KINDS])
def test_the_pods_of_each_kind_are_found(made: dict[str, Any], expected: dict[str, int]) -> None:
    assert counts(made) == expected
    assert all(each["template"]["spec"] == SPEC for each in found(made).pods)


def test_every_kind_of_the_table_is_tested() -> None:
    tested = {(made["apiVersion"].rpartition("/")[0], made["kind"]) for made, _ in KINDS}
    others = {("kubeflow.org", kind) for kind in ("XGBoostJob", "PaddleJob", "JAXJob")}
    assert set(manifests.TABLE) <= tested | others


def test_a_template_keeps_its_labels_and_the_object_its_namespace() -> None:
    (pods,) = found(an_object("batch/v1", "Job", A_JOB)).pods
    assert pods["template"]["metadata"] == {"labels": {"app": "x"}, "name": "x", "namespace": "team-a"}
    (pods,) = found(an_object("batch/v1", "Job", A_JOB, namespace="team-b")).pods
    assert pods["template"]["metadata"]["namespace"] == "team-b"
    (pods,) = found({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "run-"}, "spec": SPEC}).pods
    assert pods["template"]["metadata"]["name"] == "run"


def test_podgroups_are_passed_on() -> None:
    group = an_object("gangshare.io/v1alpha1", "PodGroup", {"minMember": 2})
    made = found(group, an_object("v1", "Pod", SPEC))
    assert made.groups == [group | {"metadata": {"name": "x", "namespace": "team-a"}}]


def test_the_pods_of_an_object_start_together_on_demand() -> None:
    made = found(an_object("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": WORKERS}), gang=True)
    said = [each["template"]["metadata"]["annotations"] for each in made.pods]
    assert said == [{names.GROUP: "x", names.MIN_MEMBER: "4", names.ROLE: role} for role in ("master", "worker")]
    own = TEMPLATE | {"metadata": {"annotations": {names.GROUP: "mine"}}}
    (pods,) = found(an_object("batch/v1", "Job", {"template": own}), gang=True).pods
    assert pods["template"]["metadata"]["annotations"] == {names.GROUP: "mine"}


BAD = {
    "a: [": "FILE is no YAML",
    "": "FILE has no pods: expected CronJob, Deployment,",
    "- 1\n": "FILE: document 1 is [1]: expected an object",
    "kind: DaemonSet\napiVersion: apps/v1\n": "FILE: 'apps/v1' 'DaemonSet' makes pods that are not known",
    "kind: 3\n": "FILE: 'None' '3' makes pods that are not known",
    "kind: [1]\napiVersion: {a: 1}\n": "makes pods that are not known",
    "kind: Pod\napiVersion: v1\nmetadata: {namespace: [1]}\n": "FILE: metadata.namespace is [1]: expected a name",
    "[" * 100: "FILE: brackets within one another",
    "x" * (manifests.MOST_BYTES + 1): "FILE has 1048577 characters: expected at most 1048576",
    yaml.safe_dump(an_object("batch/v1", "Job", {"parallelism": "many", "template": TEMPLATE})): (
        "spec.parallelism is 'many': expected a number of pods"
    ),
    "---\na: 1\n" * 300: "FILE has more than 256 objects",
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_a_bad_file_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(CommandError) as error:
        manifests.read(text, "FILE", "default", gang=False)
    assert BAD[text] in str(error.value)


# -- the command

PLACES = [{"name": "x-0", "node": "n1", "gpus": [0, 1]}, {"name": "x-1", "role": "worker", "node": "n2", "gpus": [3]}]


def a_workload(state: str, headline: str, **fields: Any) -> dict[str, Any]:
    verdict = {"state": state, "headline": headline, "advice": "submit it"}
    return {"kind": "gang", "namespace": "team-a", "name": "g", "verdict": verdict, **fields}


def an_answer(*workloads: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"verdict": workloads[0]["verdict"], "workloads": workloads, **fields}).encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(an_object("batch/v1", "Job", A_JOB)))
    return path


def run(capsys: pytest.CaptureFixture[str], port: StatusPort, file: Path, *args: str) -> Ran:
    return gangshare(capsys, "whatif", "-f", str(file), "--server", port.url, *args)


def test_a_start_is_told_with_its_places(
    status_port: StatusPort, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status_port.answers["/whatif"] = an_answer(a_workload("now", "would start now on n1, n2", pods=PLACES))
    ran = run(capsys, status_port, file, "-n", "team-a", "--with-node", "n1=2")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "gang team-a/g would start now on n1, n2\n"
        "  what to do: submit it\n"
        "\n"
        "POD         ROLE    NODE  GPUS\n"
        "team-a/x-0          n1    0,1\n"
        "team-a/x-1  worker  n2    3\n"
    )
    sent = json.loads(status_port.posted)
    assert sent["metadata"] == {"namespace": "team-a"}
    assert sent["spec"]["nodes"] == [{"like": "n1", "count": 2}]
    assert [each["count"] for each in sent["spec"]["pods"]] == [4]


def test_what_stands_in_the_way_is_told_line_by_line(
    status_port: StatusPort, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    why = {"sentence": "no GPU with 8 GiB free", "numbers": "needs 1×8 GiB"}
    later = a_workload("later", "would start in about 12 min on n1", **why, sure=False, after="team-b/old")
    later |= {"queue": "default", "place": 2, "inLine": 5, "pods": PLACES[:1]}
    more = {"verdict": {"headline": "would start now on n1+1", "advice": "submit it"}, "workloads": [later]}
    status_port.answers["/whatif"] = an_answer(later, further=more)
    ran = run(capsys, status_port, file, "--with-node", "n1")
    lines = ran.out.splitlines()
    assert lines[0] == "gang team-a/g would start in about 12 min on n1"
    assert lines[2:6] == [
        "  no GPU with 8 GiB free",
        "  needs 1×8 GiB",
        "  once team-b/old has ended (a guess: not all run times are known)",
        "  queue default: number 2 of 5 pending workloads in it",
    ]
    assert "with 1 more node like n1:" in lines
    assert "gang team-a/g would start now on n1+1" in lines


def test_victims_are_named_or_counted(status_port: StatusPort, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victims = [{"namespace": "team-a", "name": "old", "node": "n1"}]
    warned = {"warnings": ["gangshare.io/gpu-modle is not known"]}
    told = a_workload("preempts", "would start now on n1", victims=victims, otherVictims=3, **warned)
    status_port.answers["/whatif"] = an_answer(told)
    ran = run(capsys, status_port, file)
    assert "  warning: gangshare.io/gpu-modle is not known\n" in ran.out
    assert "EVICTED     NODE\nteam-a/old  n1\n" in ran.out
    assert "3 pods of namespaces that you may not see would be evicted" in ran.out


def test_json_and_yaml_are_the_answer_itself(
    status_port: StatusPort, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status_port.answers["/whatif"] = body = an_answer(a_workload("now", "would start now on n1"))
    assert json.loads(run(capsys, status_port, file, "-o", "json").out) == json.loads(body)
    assert yaml.safe_load(run(capsys, status_port, file, "-o", "yaml").out) == json.loads(body)


@pytest.mark.parametrize("given", ["=2", "n1=", "n1=0", "n1=x", "n1=-1", "n1=99999999999"])
def test_a_bad_further_node_is_refused(
    status_port: StatusPort, file: Path, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    ran = run(capsys, status_port, file, "--with-node", given)
    assert (ran.code, f"--with-node is {given!r}: expected NODE or NODE=N" in ran.err) == (1, True)


def test_a_question_that_is_too_long_is_not_sent(
    status_port: StatusPort, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.yaml"
    template = {"metadata": {"annotations": {"a": "x" * WHAT_IF_BODY.most}}, "spec": SPEC}
    path.write_text(yaml.safe_dump(an_object("batch/v1", "Job", {"template": template})))
    ran = run(capsys, status_port, path)
    assert (ran.code, "the body of a what-if question: " in ran.err, status_port.posted) == (1, True, b"")


def test_a_file_that_is_not_there_is_told(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, status_port, Path("/nowhere.yaml"))
    assert (ran.code, "/nowhere.yaml cannot be read: [Errno 2]" in ran.err) == (1, True)


# -- through the aggregated API

CLOSED = "http://127.0.0.1:1"
BASE = f"/apis/{wire.API_VERSION}"


@pytest.fixture
def api(status_port: StatusPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatusPort:
    """An API server in the kubeconfig, and nobody at the default server."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": status_port.url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(inspection, "DEFAULT_SERVER", CLOSED)
    return status_port


def through(capsys: pytest.CaptureFixture[str], file: Path, *args: str) -> Ran:
    return gangshare(capsys, "whatif", "-f", str(file), "--server", CLOSED, *args)


def test_without_a_port_forward_the_aggregated_api_answers(
    api: StatusPort, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = json.loads(an_answer(a_workload("now", "would start now on n1")))
    api.answers[f"{BASE}/namespaces/team-a/whatifs"] = json.dumps({"status": status}).encode()
    api.code = 201
    ran = through(capsys, file, "-n", "team-a")
    assert (ran.code, ran.err, ran.out.splitlines()[0]) == (0, "", "gang team-a/g would start now on n1")


@pytest.mark.parametrize(("code", "message"), [(400, "spec.pods is empty"), (403, "may not create whatifs")])
def test_a_refusal_of_the_api_is_told(
    api: StatusPort, file: Path, capsys: pytest.CaptureFixture[str], code: int, message: str
) -> None:
    api.answers[f"{BASE}/namespaces/default/whatifs"] = json.dumps({"kind": "Status", "message": message}).encode()
    api.code = code
    ran = through(capsys, file)
    assert (ran.code, message in ran.err) == (1, True)


def test_the_api_is_asked_about_one_namespace(
    api: StatusPort, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump_all([an_object("v1", "Pod", SPEC, namespace=each) for each in ("a", "b")]))
    ran = through(capsys, path)
    assert (ran.code, "the pods are in several namespaces: expected one" in ran.err) == (1, True)
