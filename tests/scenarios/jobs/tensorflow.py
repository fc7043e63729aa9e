"""TFJobs as tf-operator makes them with ``--enable-gang-scheduling`` and kube-batch."""

from __future__ import annotations

from collections.abc import Mapping

from protos.contract import names
from tests.scenarios.jobs.submitted import GROUP_NAME, Submitted, owned, owner
from tests.scenarios.podgroups import KUBE_BATCH, a_pod_group
from tests.scenarios.pods import a_container, a_pod


def tf_job(
    name: str = "tfjob-gang-scheduling", *, workers: int = 1, servers: int = 1, run_seconds: float | None = None
) -> Submitted:
    """A TFJob whose pod templates say ``schedulerName: kube-batch``: workers with a GPU, parameter servers without."""
    job = owner("kubeflow.org/v1", "TFJob", name)
    limits: dict[str, Mapping[str, object]] = {"worker": {names.WHOLE_GPU: 1}, "ps": {"cpu": "1"}}
    pods = []
    for role, count in (("worker", workers), ("ps", servers)):
        for index in range(count):
            labels = {
                "group-name": "kubeflow.org",
                "job-name": name,
                "tf-job-name": name,
                "controller-name": "tf-operator",
                "tf-replica-type": role,
                "tf-replica-index": str(index),
            }
            if (role, index) == ("worker", 0):
                labels["job-role"] = "master"
            pod = a_pod(
                f"{name}-{role}-{index}",
                a_container("tensorflow", limits[role]),
                labels=labels,
                annotations={GROUP_NAME: name},
                run_seconds=run_seconds,
                schedulerName="kube-batch",
                restartPolicy="OnFailure",
            )
            pods.append(owned(pod, job))
    group = a_pod_group(KUBE_BATCH, name, {"minMember": workers + servers}, ownerReferences=[job])
    return Submitted(group=group, pods=tuple(pods))
