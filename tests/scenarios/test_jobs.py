"""The jobs of the scenarios are what their operators make, and the samples show the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from protos.contract import names
from tests.scenarios.jobs import volcano
from tests.scenarios.jobs.mpi import ARTICLE, MpiJob, Policy, submitted
from tests.scenarios.jobs.submitted import Submitted, gang
from tests.scenarios.jobs.tensorflow import tf_job
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.world import Object

UID = "6b8a4c1e-0d5f-4f5e-9a43-2f1d3c7b9e10"
SAMPLES: dict[str, Submitted] = {
    "01-annotations": gang(
        "sample-gang", [a_pod(f"sample-gang-{i}", a_container(limits={names.GPU_MEM: 10})) for i in range(4)]
    ),
    "02-tfjob": tf_job(),
    "03-volcano-tensorflow": volcano.tensorflow(uid=UID),
    "04-mpijob-volcano": submitted(MpiJob(gang_scheduling="volcano")),
    "05-mpijob-scheduler-plugins": submitted(
        MpiJob(gang_scheduling="scheduler-plugins", name="tensorflow-benchmarks-plugins")
    ),
    "06-volcano-mindspore": volcano.mindspore(UID),
}
GPUS = {names.GPU_MEM, names.GPU_SLICE, names.WHOLE_GPU}
FOLDER = Path(__file__).parents[2] / "manifests" / "samples" / "gangs"


def test_every_job_has_its_sample() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == sorted(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_what_the_operator_makes(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text()
    assert text.startswith("# ")
    assert list(yaml.safe_load_all(text)) == as_sample(SAMPLES[name])


def as_sample(job: Submitted) -> list[Object]:
    """Without owners, which are not there for a sample, and with commands to look at and the runtime that GPUs need."""
    pods = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in job.pods]
    return [_shown(one) for one in ([job.group] if job.group else []) + pods + list(job.jobs)]


def _shown(obj: Any) -> Any:
    if isinstance(obj, list):
        return [_shown(one) for one in obj]
    if not isinstance(obj, dict):
        return obj
    hidden = ("ownerReferences", "namespace", "imagePullPolicy", "terminationGracePeriodSeconds")
    found = {key: _shown(value) for key, value in obj.items() if key not in hidden and not key.startswith("sim.")}
    if "image" in found:
        command = ["sh", "-c", 'echo "$NVIDIA_VISIBLE_DEVICES"; sleep 3600']
        found |= {"image": "busybox:1.37", "command": command}
    if any(GPUS & set(c["resources"].get("limits", ())) for c in found.get("containers", ()) if "resources" in c):
        found["runtimeClassName"] = "nvidia"
    return {key: value for key, value in found.items() if value != {}}


def test_volcano_counts_minimums_in_the_words_of_a_quota() -> None:
    asked = {"requests": {"cpu": "500m", names.WHOLE_GPU: "1"}, "limits": {"cpu": "1", names.WHOLE_GPU: "1"}}
    worker = {"name": "w", "resources": asked}
    job = volcano.volcano_job("j", [volcano.Task("w", 3, worker)], 2)
    assert job.group
    assert job.group["spec"]["minResources"] == {
        "count/pods": "2", "pods": "2", "cpu": "1", "requests.cpu": "1", "limits.cpu": "2",
        names.WHOLE_GPU: "2", f"requests.{names.WHOLE_GPU}": "2",
    }  # fmt: skip
    assert job.group["spec"]["minTaskMember"] == {"w": 3}
    assert job.group["metadata"]["name"].startswith("j-")
    assert {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in job.pods} == {
        job.group["metadata"]["name"]
    }


@pytest.mark.parametrize(
    ("job", "spec"),
    [
        (
            MpiJob(gang_scheduling="volcano", launcher_class="low", worker_class="mid"),
            {"minMember": 3, "minResources": {names.WHOLE_GPU: "4"}, "priorityClassName": "low"},
        ),
        (
            MpiJob(gang_scheduling="scheduler-plugins"),
            {"minMember": 3, "minResources": {names.WHOLE_GPU: "4"}, "scheduleTimeoutSeconds": 0},
        ),
        (
            MpiJob(gang_scheduling="volcano", policy=ARTICLE),
            {
                "minMember": 10,
                "minResources": {"cpu": "3000m"},
                "queue": "test-queue",
                "priorityClassName": "high",
            },
        ),
        (
            MpiJob(gang_scheduling="scheduler-plugins", policy=ARTICLE),
            {"minMember": 10, "minResources": {"cpu": "3000m"}, "scheduleTimeoutSeconds": 180},
        ),
        (
            MpiJob(gang_scheduling="scheduler-plugins", workers=4, policy=Policy(min_available=3)),
            {"minMember": 3, "minResources": {names.WHOLE_GPU: "4"}, "scheduleTimeoutSeconds": 0},
        ),
        (
            MpiJob(
                gang_scheduling="scheduler-plugins",
                workers=4,
                policy=Policy(min_available=3),
                worker_class="urgent",
                priorities={"urgent": 10},
            ),
            {"minMember": 3, "minResources": {names.WHOLE_GPU: "8"}, "scheduleTimeoutSeconds": 0},
        ),
    ],
)
def test_mpi_operator_fills_in_what_the_policy_leaves_open(job: MpiJob, spec: dict[str, Any]) -> None:
    made = submitted(job)
    assert made.group
    assert made.group["spec"] == spec


def test_an_mpi_launcher_is_a_job_whose_pods_name_the_group_too() -> None:
    made = submitted(MpiJob(gang_scheduling="scheduler-plugins"))
    template = made.jobs[0]["spec"]["template"]
    assert template["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "tensorflow-benchmarks"
    assert template["metadata"]["labels"]["training.kubeflow.org/job-role"] == "launcher"
    assert template["spec"]["schedulerName"] == names.PROFILE
