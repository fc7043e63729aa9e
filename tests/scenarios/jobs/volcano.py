"""Jobs of batch.volcano.sh as Volcano's controller makes them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from protos.contract import names
from tests.scenarios.jobs.submitted import GROUP_NAME, Submitted, owned, owner
from tests.scenarios.podgroups import VOLCANO, a_pod_group
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.world import Object


class Task(msgspec.Struct, frozen=True):
    """One of ``spec.tasks``."""

    name: str
    replicas: int
    container: Object
    min_available: int | None = None
    restart_policy: str = "Never"


def tensorflow(min_available: int = 4, uid: str = "") -> Submitted:
    """The distributed MNIST job: two parameter servers, two workers."""
    server, worker = a_container("tensorflow", {"cpu": "200m"}), a_container("tensorflow", {names.WHOLE_GPU: 1})
    tasks = [Task("ps", 2, server), Task("worker", 2, worker)]
    return volcano_job("tensorflow-dist-mnist", tasks, min_available, uid=uid)


def mindspore(uid: str = "") -> Submitted:
    """A master that starts the work by mpiexec, and two workers with a GPU each."""
    master, worker = a_container("mpimaster"), a_container("mpiworker", {names.WHOLE_GPU: 1})
    tasks = [Task("mpimaster", 1, master, None, "OnFailure"), Task("mpiworker", 2, worker, None, "OnFailure")]
    return volcano_job("mindspore-gpu", tasks, 3, uid=uid)


def volcano_job(
    name: str, tasks: Sequence[Task], min_available: int | None = None, queue: str = "default", uid: str = ""
) -> Submitted:
    """A Job of batch.volcano.sh: its pods are made when the PodGroup is in the queue."""
    job = owner("batch.volcano.sh/v1alpha1", "Job", name, uid)
    group = f"{name}-{job['uid']}"
    least = min_available or sum(task.replicas for task in tasks)
    spec = {
        "minMember": least,
        "minTaskMember": {task.name: task.min_available or task.replicas for task in tasks},
        "queue": queue,
        "minResources": _volcano_minimum(tasks, least),
    }
    pods = [_volcano_pod(name, group, queue, task, index) for task in tasks for index in range(task.replicas)]
    return Submitted(
        group=a_pod_group(VOLCANO, group, spec, ownerReferences=[job]),
        pods=tuple(owned(pod, job) for pod in pods),
        waits=True,
    )


def _volcano_pod(job: str, group: str, queue: str, task: Task, index: int) -> Object:
    labels = {"job-name": job, "job-namespace": "default", "queue-name": queue, "task-spec": task.name}
    marks = {"job-name": job, "queue-name": queue, "task-spec": task.name, "task-index": str(index)}
    marks |= {"job-version": "0", "job-retry-count": "0", "template-uid": f"{job}-{task.name}"}
    return a_pod(
        f"{job}-{task.name}-{index}",
        task.container,
        labels={f"volcano.sh/{key}": value for key, value in labels.items()},
        annotations={GROUP_NAME: group, **{f"volcano.sh/{key}": value for key, value in marks.items()}},
        schedulerName="volcano",
        restartPolicy=task.restart_policy,
    )


def _volcano_minimum(tasks: Sequence[Task], least: int) -> dict[str, str]:
    """minResources in the words of a ResourceQuota, over the first members: `count/pods`, `requests.…`, `limits.…`."""
    total: dict[str, float] = {}
    containers = [task.container for task in tasks for _ in range(task.replicas)]
    for container in containers[:least]:
        resources = container.get("resources", {})
        asked = {"count/pods": "1", "pods": "1"}
        for resource, amount in resources.get("requests", {}).items():
            asked |= {resource: amount, f"requests.{resource}": amount}
        for resource, amount in resources.get("limits", {}).items():
            if resource in ("cpu", "memory"):
                asked[f"limits.{resource}"] = amount
        for resource, amount in asked.items():
            total[resource] = total.get(resource, 0) + _number(amount)
    return {resource: _text(amount) for resource, amount in sorted(total.items())}


def _number(quantity: str) -> float:
    return float(quantity.removesuffix("m")) / (1000 if quantity.endswith("m") else 1)


def _text(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number * 1000:g}m"
