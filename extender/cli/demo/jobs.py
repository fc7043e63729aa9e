"""Jobs, and pods as they belong to them: a Job makes a lost pod anew."""

from __future__ import annotations

from collections.abc import Mapping

from extender.cli.demo import pods
from extender.sim.podspec import Object


def job(name: str, app: str, count: int, said: Mapping[str, str], resources: Object) -> Object:
    """A Job of so many pods of this app; `said`: their annotations. They end as soon as they are told to."""
    spec = {**pods.spec(resources), "restartPolicy": "Never"}
    template = {"metadata": {"labels": {"app": app}, "annotations": dict(said)}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": pods.NAMESPACE},
        "spec": {"parallelism": count, "completions": count, "completionMode": "Indexed", "template": template},
    }


def is_of(pod: Object, app: str) -> bool:
    """Whether the pod belongs to this app."""
    return bool((pod["metadata"].get("labels") or {}).get("app") == app)
