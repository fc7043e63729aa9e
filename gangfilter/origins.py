"""The workloads that a pod is part of, as far as the pod shows them: its controller, and what operators write on it.

Pods of one workload can have several controllers: the Jobs of a JobSet, a launcher's Job and its workers.
"""

from __future__ import annotations

from gangfilter.naming import YUNIKORN_APPLICATION
from gangfilter.values import Reader, label
from protos.contract.bounds import NAME
from protos.contract.objects import OwnerReference, Pod

WORKLOADS = (
    label("jobset.sigs.k8s.io/jobset-name"),
    label("leaderworkerset.sigs.k8s.io/name"),
    label("training.kubeflow.org/job-name"),
    label("mpi_job_name"),
    label("volcano.sh/job-name"),
    label("ray.io/cluster"),
    label("spark-app-selector"),
    *YUNIKORN_APPLICATION,
)
"""Keys by which operators name the workload on all pods of it."""
_TEMPLATE_HASHES = ("pod-template-hash", "rollouts-pod-template-hash")
"""Labels with the end of a ReplicaSet's name, which changes with each rollout."""


def origins(pod: Pod) -> frozenset[str]:
    """The workloads of the pod, for people and for comparison; pods without a controller are one workload."""
    meta = pod.metadata
    reader = Reader(meta.annotations, meta.labels)
    named = (f"{key.name} {text[: NAME.most]}" for key in WORKLOADS if (text := reader.text(key)))
    controllers = (_named(owner, pod) for owner in meta.owner_references if owner.controller)
    return frozenset((next(controllers, "no controller"), *named))


def _named(controller: OwnerReference, pod: Pod) -> str:
    """Kind and name of the controller: a Job that is created again is the same, and so is the next ReplicaSet."""
    name = controller.name
    for key in _TEMPLATE_HASHES if controller.kind == "ReplicaSet" else ():
        if end := pod.metadata.labels.get(key):
            name = name.removesuffix(f"-{end}")
    return f"{controller.kind} {name[: NAME.most]}"
