"""Pods and workloads with mistakes in their keys and values, what is said of each, and right ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protos.contract import names
from tests.cluster.api import Json
from tests.cluster.cluster import a_pod


def asking(
    *limits: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    scheduler: str = names.PROFILE,
) -> Json:
    """A pod with a container for each of the limits."""
    pod = a_pod("pod", "sleep infinity")
    pod["metadata"] |= {"annotations": dict(annotations or {}), "labels": {"app": "pod", **(labels or {})}}
    (main,) = pod["spec"]["containers"]
    each = limits or [{names.GPU_MEM: "10"}]
    pod["spec"] |= {
        "schedulerName": scheduler,
        "restartPolicy": "Always",
        "containers": [
            {**main, "name": f"c-{i}", "resources": {"limits": dict(asked)}} for i, asked in enumerate(each)
        ],
    }
    return pod


def a_wrong_pod() -> Json:
    return asking(annotations={"gangshare.io/gpu-modle": "*H200*"})


def deployment(pod: Json) -> Json:
    """A Deployment of such pods."""
    template = {"metadata": {key: pod["metadata"][key] for key in ("annotations", "labels")}, "spec": pod["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "pod"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pods"}, "spec": spec}


def job(pod: Json) -> Json:
    template = deployment({**pod, "spec": {**pod["spec"], "restartPolicy": "Never"}})["spec"]["template"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pods"}, "spec": {"template": template}}


def cron_job(pod: Json) -> Json:
    spec = {"schedule": "@daily", "jobTemplate": {"spec": job(pod)["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "pods"}, "spec": spec}


def replica_set(pod: Json) -> Json:
    return {**deployment(pod), "kind": "ReplicaSet"}


def daemon_set(pod: Json) -> Json:
    found = deployment(pod)
    del found["spec"]["replicas"]
    return {**found, "kind": "DaemonSet"}


def stateful_set(pod: Json) -> Json:
    found = deployment(pod)
    return {**found, "kind": "StatefulSet", "spec": {**found["spec"], "serviceName": "pods"}}


HAMI = {names.WHOLE_GPU: "1", "nvidia.com/gpumem": "3000"}
COUNT = {names.GPU_COUNT: "2"}

MISTAKES: Mapping[str, tuple[Json, str]] = {
    "a misspelt annotation": (
        a_wrong_pod(),
        "annotation gangshare.io/gpu-modle is not known to Gangshare: "
        "its annotations are checkpoint, elastic, expected-runtime, gpu-class, gpu-count, gpu-model, gpu-uuid, group,",
    ),
    "an annotation with a domain like ours": (
        asking(annotations={"gangshare.com/gpu-model": "*H200*"}),
        "annotation gangshare.com/gpu-model is not known to Gangshare: write gangshare.io/gpu-model",
    ),
    "a domain with a typo": (
        asking(annotations={"gansghare.io/gpu-model": "*H200*"}),
        "annotation gansghare.io/gpu-model is not known to Gangshare: write gangshare.io/gpu-model",
    ),
    "a domain below ours": (
        asking({"scheduling.gangshare.io/gpu-mem": "4"}),
        "resource scheduling.gangshare.io/gpu-mem is not known to Gangshare: write gangshare.io/gpu-mem",
    ),
    "an annotation with the domain of another product": (
        asking(annotations={"nvidia.com/gpuModel": "*H200*"}),
        "nvidia.com/gpuModel is not known to Gangshare: write annotation gangshare.io/gpu-model",
    ),
    "an annotation without a domain": (
        asking(annotations={"gpu-model": "*H200*"}),
        "gpu-model is not known to Gangshare: write annotation gangshare.io/gpu-model",
    ),
    "an annotation as a label": (
        asking(labels={names.GPU_MODEL: "H200"}),
        "label gangshare.io/gpu-model is not known to Gangshare: write it as annotation gangshare.io/gpu-model",
    ),
    "a limit as an annotation": (
        asking(annotations={names.GPU_MEM: "10"}),
        "annotation gangshare.io/gpu-mem is not known to Gangshare: "
        "write it as limit gangshare.io/gpu-mem of a container",
    ),
    "an annotation as a limit": (
        asking({names.GPU_COUNT: "2"}),
        "resource gangshare.io/gpu-count is not known to Gangshare: write it as annotation gangshare.io/gpu-count",
    ),
    "a limit of another name": (
        asking({"cpu": "1"}, {"gangshare.io/gpu-memory": "4"}),
        "resource gangshare.io/gpu-memory is not known to Gangshare: did you mean gangshare.io/gpu-mem?",
    ),
    "a term of the field": (
        asking(annotations={"gangshare.io/min-available": "4"}),
        "annotation gangshare.io/min-available is not known to Gangshare: did you mean gangshare.io/min-member?",
    ),
    "memory with its unit": (
        asking({names.GPU_MEM: "10Gi"}),
        "container c-0: gangshare.io/gpu-mem is '10Gi': expected a number of GiB: write gangshare.io/gpu-mem: 10",
    ),
    "less memory than a unit": (asking({names.GPU_MEM: "500Mi"}), "write gangshare.io/gpu-mem: 1"),
    "memory in thousands": (
        asking({names.GPU_MEM: "10G"}),
        "is '10G': expected a number of GiB: write gangshare.io/gpu-mem: 10",
    ),
    "no memory": (
        asking({names.GPU_MEM: "0"}),
        "container c-0 asks gangshare.io/gpu-mem 0, which is no GPU: ask one or more, or leave it out",
    ),
    "whole GPUs by gpu-count": (
        asking({names.WHOLE_GPU: "1"}, annotations=COUNT),
        "container c-0 asks nvidia.com/gpu 1, and gangshare.io/gpu-count 2 is for parts of GPUs: "
        "write nvidia.com/gpu: 2 without gangshare.io/gpu-count",
    ),
    "KAI's fraction": (
        asking({"cpu": "1"}, annotations={"gpu-fraction": "0.5"}),
        "annotation gpu-fraction is of KAI, and Gangshare does not read it: write limit gangshare.io/gpu-slice",
    ),
    "HAMi's memory": (
        asking(HAMI),
        "resource nvidia.com/gpumem is of HAMi, and Gangshare does not read it: write limit gangshare.io/gpu-mem",
    ),
    "Volcano's memory": (
        asking({"volcano.sh/vgpu-memory": "3000"}),
        "resource volcano.sh/vgpu-memory is of Volcano, and Gangshare does not read it: "
        "write limit gangshare.io/gpu-mem",
    ),
    "KAI's fraction with the domain of its vendor": (
        asking({"cpu": "1"}, annotations={"run.ai/gpu-fraction": "0.5"}),
        "annotation run.ai/gpu-fraction is of KAI, and Gangshare does not read it: write limit gangshare.io/gpu-slice",
    ),
    "HAMi's type as a label": (
        asking(labels={"nvidia.com/use-gputype": "H200"}),
        "label nvidia.com/use-gputype is of HAMi, and Gangshare does not read it: "
        "write annotation gangshare.io/gpu-model",
    ),
    "a model without a limit": (
        asking({"cpu": "1"}, annotations={names.GPU_MODEL: "H200"}),
        "annotation gangshare.io/gpu-model selects GPUs, and no container asks for any: "
        "write limit gangshare.io/gpu-mem, gangshare.io/gpu-slice or nvidia.com/gpu of a container, or leave it out",
    ),
    "another scheduler": (
        asking(scheduler="gangshre"),
        "schedulerName is gangshre: that scheduler does not ask Gangshare: write schedulerName: gangshare",
    ),
    "a misspelt scheduler of whole GPUs": (
        asking({names.WHOLE_GPU: "1"}, scheduler="Gangshare"),
        "schedulerName is Gangshare: that scheduler does not ask Gangshare: write schedulerName: gangshare",
    ),
    "the scheduler of the cluster": (
        asking({names.WHOLE_GPU: "1"}, annotations={names.GPU_MODEL: "H200"}, scheduler="default-scheduler"),
        "schedulerName is default-scheduler: that scheduler does not ask Gangshare: write schedulerName: gangshare",
    ),
    "an exclusion of nothing": (
        asking(annotations={names.GPU_MODEL: "!=T4"}),
        "gangshare.io/gpu-model is '!=T4': expected names or globs, separated by commas",
    ),
    "an index as UUID": (
        asking(annotations={names.GPU_UUID: "0"}),
        "gangshare.io/gpu-uuid is '0': expected UUIDs like GPU-5f0a or globs, separated by commas",
    ),
    "a minimum of memory that every GPU has": (
        asking(annotations={names.MIN_GPU_MEMORY: "40Mi"}),
        "gangshare.io/min-gpu-memory is '40Mi': expected an amount like 40Gi",
    ),
    "a day as checkpoint": (
        asking(annotations={names.CHECKPOINT: "2026-01-31"}),
        "gangshare.io/checkpoint is '2026-01-31': expected a time like 2026-01-31T12:00:00Z",
    ),
    "a run time in words": (
        asking(annotations={names.EXPECTED_RUNTIME: "1 day"}),
        "gangshare.io/expected-runtime is '1 day': expected seconds above 0, like 5400, or a duration like 90m",
    ),
    "no members": (
        asking(annotations={names.GROUP: "g", names.MIN_MEMBER: "0"}),
        "gangshare.io/min-member is '0': expected a whole number from 1 to 150000",
    ),
    "memory of the GPU without a unit": (
        asking(annotations={names.MIN_GPU_MEMORY: "70"}),
        "gangshare.io/min-gpu-memory is '70': expected an amount with its unit: write 70Gi",
    ),
    "an unknown link": (
        asking(annotations={names.LINK: "nvswitch"}),
        "gangshare.io/link is 'nvswitch': expected any, nvlink, prefer",
    ),
    "an unknown placement": (
        asking(annotations={names.PLACEMENT: "wide"}),
        "gangshare.io/placement is 'wide': expected pack, spread",
    ),
    "a count that is none": (
        asking(annotations={names.GPU_COUNT: "0"}),
        "gangshare.io/gpu-count is '0': expected a whole number from 1 to 1024",
    ),
    "a yes": (
        asking(annotations={names.RESTARTABLE: "yes"}),
        "gangshare.io/restartable is 'yes': expected true or false",
    ),
    "a value of several lines": (
        asking(annotations={names.LINK: "nv\nlink"}),
        "gangshare.io/link cannot be read: expected any, nvlink, prefer",
    ),
}

NORMAL: Mapping[str, Any] = {
    "annotations": {
        "sidecar.istio.io/inject": "true", "prometheus.io/scrape": "true", "workflows.argoproj.io/node-name": "train",
        "argocd.argoproj.io/sync-wave": "1", "kueue.x-k8s.io/workload": "job-train-1", "gpu-type": "large",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true",
        "vault.hashicorp.com/agent-inject": "true", "scheduling.k8s.io/group-name": "train", "acme.com/gpu-model": "x",
        "k8s.v1.cni.cncf.io/networks": "rdma", "meta.helm.sh/release-name": "train", "nvidia.com/gpu-driver": "x",
    },
    "labels": {
        "kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/managed": "true", "volcano.sh/job-name": "train",
        "training.kubeflow.org/job-name": "train", "ray.io/group": "workers", "app.kubernetes.io/name": "train",
        "group": "blue", "role": "db", "queue": "mail", "priority": "high", "acme.com/gpu-count": "8",
    },
}  # fmt: skip
"""What other products and people write."""

RIGHT: Mapping[str, Json] = {
    "keys of others": asking(**NORMAL),
    "keys of others beside whole GPUs": asking({names.WHOLE_GPU: "1"}, **NORMAL),
    "keys of others in a pod without GPUs": asking({"cpu": "1"}, **NORMAL),
    "a launcher with the annotations of its workers": asking(
        {"cpu": "1"}, annotations={names.GPU_MODEL: "H200", names.GROUP: "g", names.MIN_MEMBER: "2"}
    ),
    "a selection where no GPU is asked": asking({names.WHOLE_GPU: "0"}, annotations={names.GPU_MODEL: "H200"}),
    "every annotation": asking(
        annotations={
            names.GPU_COUNT: "2", names.GPU_CLASS: "large", names.GPU_MODEL: "*A100*", names.GPU_UUID: "GPU-*",
            names.MIN_GPU_MEMORY: "40Gi", names.MIN_CLOCK_MHZ: "1400", names.MIN_COMPUTE_CAPABILITY: "8.0",
            names.LINK: "nvlink", names.PLACEMENT: "spread", names.RESTARTABLE: "true", names.EXPECTED_RUNTIME: "2h",
            names.CHECKPOINT: "2026-01-31T12:00:00Z", names.GROUP: "g", names.MIN_MEMBER: "2",
        },
        labels={names.QUEUE: "research", names.ROLE: "worker"},
    ),
    "parts and whole GPUs": asking(
        {names.GPU_MEM: "20", names.GPU_SLICE: "25"}, {names.WHOLE_GPU: "2"}, annotations=COUNT
    ),
    "a pod for any cluster": asking({names.WHOLE_GPU: "0", "cpu": "1"}, scheduler="default-scheduler"),
    "keys of a product that schedules the pod": asking(
        HAMI, annotations={"gpu-fraction": "0.5"}, scheduler="kai-scheduler"
    ),
    "a domain of somebody else": asking(annotations={"gangway.io/x": "1", "sim.gangshare.io/run-seconds": "1"}),
    "words without a domain in a pod without GPUs": asking({"cpu": "1"}, annotations={"gpu-model": "x"}),
}  # fmt: skip
