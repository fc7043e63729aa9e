"""MPIJobs of kubeflow.org/v2beta1 as MPI Operator makes them with ``--gang-scheduling``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from protos.contract import names
from tests.scenarios.jobs.submitted import GROUP_NAME, Submitted, owned, owner
from tests.scenarios.podgroups import SCHEDULER_PLUGINS, VOLCANO, a_pod_group
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.world import Object

POD_GROUP = "scheduling.x-k8s.io/pod-group"
_KUBEFLOW = "training.kubeflow.org/"
_NO_GPU = [{"name": name, "value": ""} for name in (names.VISIBLE_DEVICES, "NVIDIA_DRIVER_CAPABILITIES")]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """``spec.runPolicy.schedulingPolicy``."""

    min_available: int | None = None
    queue: str = ""
    min_resources: dict[str, str] | None = None
    priority_class: str = ""
    schedule_timeout_seconds: int | None = None


ARTICLE = Policy(
    min_available=10,
    queue="test-queue",
    min_resources={"cpu": "3000m"},
    priority_class="high",
    schedule_timeout_seconds=180,
)
"""What the operator's guide shows."""


class MpiJob(msgspec.Struct, frozen=True, kw_only=True):
    """An MPIJob with one launcher, which asks for nothing, and workers with whole GPUs."""

    gang_scheduling: Literal["volcano", "scheduler-plugins"]
    """For scheduler-plugins the operator is told our scheduler's name."""
    name: str = "tensorflow-benchmarks"
    workers: int = 2
    gpus: int = 2
    policy: Policy = Policy()
    launcher_class: str = ""
    worker_class: str = ""
    priorities: dict[str, int] = {}
    """The PriorityClasses that exist."""

    @property
    def group_keys(self) -> dict[str, dict[str, str]]:
        """The annotation or label by which a pod names its group."""
        if self.gang_scheduling == "volcano":
            return {"annotations": {GROUP_NAME: self.name}, "labels": {}}
        return {"annotations": {}, "labels": {POD_GROUP: self.name}}

    @property
    def scheduler(self) -> str:
        return "volcano" if self.gang_scheduling == "volcano" else names.PROFILE


def submitted(job: MpiJob) -> Submitted:
    """The PodGroup, the workers' pods, and the launcher, which is a Job of batch/v1."""
    reference = owner("kubeflow.org/v2beta1", "MPIJob", job.name)
    group = _group(job)
    group["metadata"]["ownerReferences"] = [reference]
    workers = tuple(owned(_worker(job, index), reference) for index in range(job.workers))
    return Submitted(group=group, pods=workers, jobs=(owned(_launcher(job), reference),))


def _group(job: MpiJob) -> Object:
    """Where the policy says nothing: all members; what their containers ask for; the launcher's priority class."""
    policy = job.policy
    least = policy.min_available or job.workers + 1
    counted = str(job.gpus * _counted_workers(job, least))
    spec: Object = {"minMember": least, "minResources": policy.min_resources or {names.WHOLE_GPU: counted}}
    if job.gang_scheduling == "scheduler-plugins":
        spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds or 0
        return a_pod_group(SCHEDULER_PLUGINS, job.name, spec)
    chosen = policy.priority_class or job.launcher_class or job.worker_class
    spec |= {"queue": policy.queue} if policy.queue else {}
    spec |= {"priorityClassName": chosen} if chosen else {}
    return a_pod_group(VOLCANO, job.name, spec)


def _counted_workers(job: MpiJob, least: int) -> int:
    """Of more replicas than the minimum, those of the lower priority are left out; of equals, workers."""
    launcher, worker = (job.priorities.get(name, 0) for name in (job.launcher_class, job.worker_class))
    trimmed = job.workers + 1 > least and launcher >= worker
    return least - 1 if trimmed else job.workers


def _worker(job: MpiJob, index: int) -> Object:
    beside = [_beside(50, _labels(job, "launcher")), _beside(100, _labels(job, "worker"))]
    search = f"{job.name}.default.svc.cluster.local"
    container = a_container(job.name, {names.WHOLE_GPU: job.gpus})
    name = f"{job.name}-worker-{index}"
    more = {"restartPolicy": "Never", "dnsConfig": {"searches": [search]}, **_class(job.worker_class)}
    return _pod(job, name, container, "worker", beside, {f"{_KUBEFLOW}replica-index": str(index)}, more)


def _launcher(job: MpiJob) -> Object:
    near = _beside(100, _labels(job, "worker"), "topology.kubernetes.io/zone")
    name = f"{job.name}-launcher"
    more = {"restartPolicy": "OnFailure", **_class(job.launcher_class)}
    pod = _pod(job, name, a_container(job.name, env=_NO_GPU), "launcher", [near], {}, more)
    template = {"metadata": {key: pod["metadata"][key] for key in ("labels", "annotations")}, "spec": pod["spec"]}
    metadata = {"name": name, "namespace": "default", "labels": {"app": job.name}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


def _pod(
    job: MpiJob, name: str, container: Object, role: str, beside: list[Object], labels: Mapping[str, str], more: Any
) -> Object:
    keys = job.group_keys
    return a_pod(
        name,
        container,
        labels={**_labels(job, role), **labels, **keys["labels"]},
        annotations={"sidecar.istio.io/inject": "false", **keys["annotations"]},
        schedulerName=job.scheduler,
        hostname=name,
        subdomain=job.name,
        affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": beside}},
        **more,
    )


def _labels(job: MpiJob, role: str) -> dict[str, str]:
    found = {"operator-name": "mpi-operator", "job-name": job.name, "job-role": role}
    return {f"{_KUBEFLOW}{key}": value for key, value in found.items()}


def _beside(weight: int, labels: Mapping[str, str], topology: str = "kubernetes.io/hostname") -> Object:
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": topology}
    return {"weight": weight, "podAffinityTerm": term}


def _class(name: str) -> Object:
    return {"priorityClassName": name} if name else {}
