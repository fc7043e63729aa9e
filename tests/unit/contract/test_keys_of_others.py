"""Keys that other products and people write on pods: they are nobody's mistake, with GPUs and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gangfilter import dialects
from protos.contract import mistakes, names
from tests.builders import a_pod

Keys = Mapping[str, str]
PODS: Mapping[str, tuple[Keys, Keys]] = {
    "a Job of Kueue": (
        {"kueue.x-k8s.io/workload": "job-x-1", "kueue.x-k8s.io/podset-required-topology": "rack"},
        {
            "kueue.x-k8s.io/podset": "main",
            "kueue.x-k8s.io/queue-name": "q",
            "kueue.x-k8s.io/managed": "true",
            "batch.kubernetes.io/job-name": "x",
            "controller-uid": "u",
            "kueue.x-k8s.io/pod-group-pod-index": "0",
        },
    ),
    "Kueue's topologies": (
        {"kueue.x-k8s.io/podset-unconstrained-topology": "true"},
        {"kueue.x-k8s.io/tas": "true", "kueue.x-k8s.io/priority-class": "high"},
    ),
    "a Job of Volcano": (
        {
            "scheduling.k8s.io/group-name": "j-1",
            "volcano.sh/job-name": "j",
            "volcano.sh/job-version": "0",
            "volcano.sh/queue-name": "default",
            "volcano.sh/task-spec": "worker",
            "volcano.sh/template-uid": "u",
            "volcano.sh/task-index": "0",
        },
        {
            "volcano.sh/job-name": "j",
            "volcano.sh/job-namespace": "d",
            "volcano.sh/queue-name": "default",
            "volcano.sh/task-spec": "worker",
            "volcano.sh/task-index": "0",
        },
    ),
    "a PyTorchJob": (
        {"scheduling.k8s.io/group-name": "p", "volcano.sh/task-spec": "worker"},
        {
            "training.kubeflow.org/job-name": "p",
            "training.kubeflow.org/job-role": "master",
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-index": "0",
            "training.kubeflow.org/replica-type": "master",
        },
    ),
    "an MPIJob": (
        {},
        {
            "training.kubeflow.org/job-name": "m",
            "training.kubeflow.org/job-role": "launcher",
            "training.kubeflow.org/operator-name": "mpi-operator",
            "scheduling.x-k8s.io/pod-group": "m",
        },
    ),
    "Kubeflow Trainer": (
        {},
        {
            "jobset.sigs.k8s.io/jobset-name": "t",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "scheduling.x-k8s.io/pod-group": "t",
            "trainer.kubeflow.org/trainjob-ancestor-step": "trainer",
        },
    ),
    "KubeRay": (
        {"ray.io/ft-enabled": "false"},
        {
            "ray.io/cluster": "c",
            "ray.io/group": "gpu-group",
            "ray.io/node-type": "worker",
            "ray.io/is-ray-node": "yes",
            "ray.io/identifier": "x",
            "app.kubernetes.io/name": "kuberay",
        },
    ),
    "Argo Workflows": (
        {
            "workflows.argoproj.io/node-id": "x",
            "workflows.argoproj.io/node-name": "y",
            "workflows.argoproj.io/template": "{}",
        },
        {"workflows.argoproj.io/completed": "false", "workflows.argoproj.io/workflow": "w"},
    ),
    "Istio": (
        {
            "sidecar.istio.io/status": "{}",
            "istio.io/rev": "default",
            "kubectl.kubernetes.io/default-container": "main",
            "prometheus.io/port": "15020",
        },
        {"security.istio.io/tlsMode": "istio", "service.istio.io/canonical-name": "x"},
    ),
    "Spark on YuniKorn": (
        {"yunikorn.apache.org/task-group-name": "spark-driver"},
        {
            "spark-app-selector": "s",
            "spark-role": "driver",
            "sparkoperator.k8s.io/app-name": "x",
            "applicationId": "a",
            "queue": "root.default",
        },
    ),
    "KServe and Knative": (
        {
            "serving.knative.dev/creator": "x",
            "autoscaling.knative.dev/target": "1",
            "internal.serving.kserve.io/storage-initializer-sourceuri": "x",
        },
        {
            "serving.kserve.io/inferenceservice": "m",
            "component": "predictor",
            "service.istio.io/canonical-revision": "r",
        },
    ),
    "a LeaderWorkerSet": (
        {"leaderworkerset.sigs.k8s.io/size": "4"},
        {
            "leaderworkerset.sigs.k8s.io/name": "l",
            "leaderworkerset.sigs.k8s.io/group-index": "0",
            "leaderworkerset.sigs.k8s.io/worker-index": "1",
            "leaderworkerset.sigs.k8s.io/group-key": "k",
        },
    ),
    "KAI": (
        {"pod-group-name": "pg-x", "runai-job-id": "x", "kai.scheduler/received-resource-type": "Regular"},
        {"kai.scheduler/queue": "q", "kai.scheduler/subgroup-name": "w", "runai/queue": "q", "project": "p"},
    ),
    "HAMi's scheduler": (
        {
            "hami.io/vgpu-devices-allocated": "x",
            "hami.io/bind-phase": "success",
            "hami.io/vgpu-node": "n",
            "hami.io/vgpu-time": "1",
            "nvidia.com/vgpu-mode": "hami-core",
        },
        {"hami.io/webhook": "ignore"},
    ),
    "Koordinator": (
        {
            "gang.scheduling.koordinator.sh/name": "g",
            "gang.scheduling.koordinator.sh/min-available": "2",
            "gang.scheduling.koordinator.sh/total-number": "2",
            "gang.scheduling.koordinator.sh/mode": "Strict",
            "gang.scheduling.koordinator.sh/waiting-time": "60s",
        },
        {"koordinator.sh/qosClass": "LS", "quota.scheduling.koordinator.sh/name": "q"},
    ),
    "NVIDIA's operator": (
        {"nvidia.com/gpu-driver-upgrade-drain.skip": "true"},
        {
            "nvidia.com/gpu.deploy.operands": "true",
            "nvidia.com/gpu-driver-upgrade-drain.skip": "true",
            "nvidia.com/gpu.workload.config": "container",
        },
    ),
    "GKE": (
        {
            "cloud.google.com/gke-gpu-driver-version": "latest",
            "autoscaling.gke.io/class": "x",
            "devices.gke.io/container.tcpxo-daemon": "x",
        },
        {"cloud.google.com/gke-nodepool": "x"},
    ),
    "EKS and Karpenter": (
        {
            "eks.amazonaws.com/role-arn": "x",
            "karpenter.sh/do-not-disrupt": "true",
            "k8s.amazonaws.com/accelerator": "x",
        },
        {"karpenter.sh/nodepool": "x"},
    ),
    "people": (
        {"prometheus.io/scrape": "true"},
        {
            "app": "gpu-monitor",
            "gpu": "true",
            "gpu-pool": "a",
            "gpu-type": "a100",
            "accelerator": "nvidia",
            "model": "llama",
            "gpu-node": "x",
            "team": "ml",
            "cost-center": "x",
        },
    ),
    "Tekton": ({"tekton.dev/ready": "READY", "pipeline.tekton.dev/release": "x"}, {"tekton.dev/taskRun": "x"}),
    "GitLab": (
        {"job.runner.gitlab.com/id": "1", "project.runner.gitlab.com/id": "1"},
        {"job.runner.gitlab.com/pod": "x"},
    ),
    "JupyterHub": (
        {"hub.jupyter.org/username": "u"},
        {"component": "singleuser-server", "hub.jupyter.org/network-access-hub": "true"},
    ),
    "Slurm": ({"slinky.slurm.net/x": "1"}, {"app.kubernetes.io/instance": "x"}),
    "NVIDIA Dynamo": (
        {},
        {
            "nvidia.com/dynamo-component": "x",
            "nvidia.com/dynamo-namespace": "x",
            "grove.io/podclique": "x",
            "grove.io/podgang": "y",
        },
    ),
    "Armada": (
        {"armadaproject.io/jobId": "x", "armadaproject.io/gangId": "g", "armadaproject.io/gangCardinality": "4"},
        {"armada_queue_id": "x"},
    ),
    "SkyPilot": (
        {},
        {
            "skypilot-cluster": "x",
            "ray-node-type": "head",
            "ray-cluster-name": "x",
            "parent": "skypilot",
            "skypilot-user": "u",
        },
    ),
    "Kubernetes": (
        {"batch.kubernetes.io/job-completion-index": "0"},
        {"pod-template-hash": "x", "statefulset.kubernetes.io/pod-name": "x", "apps.kubernetes.io/pod-index": "0"},
    ),
}
"""By product: annotations and labels of its pods."""


@pytest.mark.parametrize(
    "asked", [{"mem": 1}, {"slices": 10}, {"whole": 1}, {}], ids=["memory", "slices", "whole", "nothing"]
)
@pytest.mark.parametrize("product", PODS)
def test_nothing_is_said_of_the_keys_of(product: str, asked: dict[str, Any]) -> None:
    annotations, labels = PODS[product]
    pod = a_pod(annotations=annotations, labels=labels, **asked)
    assert mistakes.first(pod, names.Resources(), names.DEFAULT_SLICES_PER_GPU) is None
    assert mistakes.without_gpus(pod, names.Resources()) is None
    found = dialects.membership(pod)
    assert found is None or (found.key.name and not found.problems)


@pytest.mark.parametrize("product", PODS)
def test_a_pod_of_another_scheduler_is_not_taken_for_ours_by_the_keys_of(product: str) -> None:
    annotations, labels = PODS[product]
    assert not mistakes.names_us(a_pod(whole=1, annotations=annotations, labels=labels))
