"""ET-operator's kinds, as far as a scheduler reads and writes them: TrainingJob, ScaleIn and ScaleOut.

A TrainingJob's workers come and go while it runs. Which of them shall go a ScaleIn names, how many shall come a
ScaleOut; the operator does one at a time, and says in conditions how it went.
Source: AliyunContainerService/et-operator, api/v1alpha1, pkg/controllers/{scaler,scalein,scaleout,status}.go.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from protos.contract import names
from protos.contract.bounds import MEMBERS, SCALED, TIME
from protos.contract.objects import Condition, ObjectMeta
from protos.contract.timestamps import epoch_seconds

GROUP = "kai.alibabacloud.com"
API_VERSION = f"{GROUP}/v1alpha1"
JOB_KIND = "TrainingJob"
WORKER = "worker"
"""The role of those that come and go."""
ScalerKind = Literal["ScaleIn", "ScaleOut"]
PLURALS: dict[ScalerKind, str] = {"ScaleIn": "scaleins", "ScaleOut": "scaleouts"}
TIMEOUT_S = 60.0
"""Seconds after which a ScaleOut whose workers do not all run is given up, if it does not say."""
MANAGED_BY = "app.kubernetes.io/managed-by"
"""The label by which those that we made are known."""


class TrainingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was read."""

    namespace: str
    name: str
    uid: str
    least: int
    """Workers that it needs, once it runs."""
    most: int
    """Workers that it may have; as many as it began with, if it does not say."""
    running: bool
    """Its operator says that it runs, and that nobody scales it now."""


class Scaler(msgspec.Struct, frozen=True, kw_only=True):
    """A ScaleIn or ScaleOut."""

    kind: ScalerKind
    namespace: str
    name: str
    job: str
    uid: str = ""
    ours: bool = False
    created: str | None = None
    """RFC 3339."""
    pods: tuple[str, ...] = ()
    """The workers that go or come, as far as they are named."""
    count: int = 0
    """How many do."""
    timeout_s: float = TIMEOUT_S
    begun: bool = False
    """The operator has taken it up."""
    outcome: Literal["", "done", "failed"] = ""
    """How it ended, "" while it has not."""


class _Worker(msgspec.Struct, rename="camel"):
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None


class _Specs(msgspec.Struct):
    worker: _Worker


class _JobSpec(msgspec.Struct, rename="camel"):
    et_replica_specs: _Specs


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    conditions: tuple[Condition, ...] | None = None
    to_delete_pods: tuple[str, ...] | None = None
    add_pods: tuple[str, ...] | None = None


class _Job(msgspec.Struct):
    metadata: ObjectMeta
    spec: _JobSpec
    status: _Status | None = None


class _Selector(msgspec.Struct):
    name: str = ""


class _Workers(msgspec.Struct, rename="camel"):
    count: int | None = None
    pod_names: tuple[str, ...] | None = None


class _ScalerSpec(msgspec.Struct, rename="camel"):
    selector: _Selector = msgspec.field(default_factory=_Selector)
    to_add: _Workers | None = None
    to_delete: _Workers | None = None
    timeout: int | None = None


class _Scaler(msgspec.Struct):
    metadata: ObjectMeta
    spec: _ScalerSpec
    status: _Status | None = None


_JOB = msgspec.json.Decoder(_Job)
_SCALER = msgspec.json.Decoder(_Scaler)


def decode_job(raw: bytes) -> TrainingJob:
    """A TrainingJob from its JSON; raises msgspec.DecodeError."""
    job = _JOB.decode(raw)
    worker, meta = job.spec.et_replica_specs.worker, job.metadata
    replicas = worker.replicas or 0
    return TrainingJob(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        least=MEMBERS.capped(replicas if worker.min_replicas is None else worker.min_replicas),
        most=MEMBERS.capped(replicas if worker.max_replicas is None else worker.max_replicas),
        running=job.status is not None and job.status.phase == "Running" and not meta.deletion_timestamp,
    )


def decode_scaler(kind: ScalerKind, raw: bytes) -> Scaler:
    """A ScaleIn or ScaleOut from its JSON; raises msgspec.DecodeError."""
    read = _SCALER.decode(raw)
    meta, spec, status = read.metadata, read.spec, read.status or _Status()
    asked = (spec.to_delete if kind == "ScaleIn" else spec.to_add) or _Workers()
    told = status.to_delete_pods if kind == "ScaleIn" else status.add_pods
    pods = told or asked.pod_names or ()
    true = {condition.type for condition in status.conditions or () if condition.status == "True"}
    return Scaler(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        job=spec.selector.name,
        uid=meta.uid,
        ours=meta.labels.get(MANAGED_BY) == names.EXTENDER,
        created=_time(meta.creation_timestamp),
        pods=pods[: SCALED.most],
        count=MEMBERS.capped(len(pods)) or MEMBERS.capped(asked.count or 0),
        timeout_s=TIMEOUT_S if spec.timeout is None else float(TIME.capped(spec.timeout)),
        begun="Scaling" in true,
        outcome="done" if "ScaleSucceeded" in true else "failed" if true & {"ScaleFailed", "ScaleAborted"} else "",
    )


def _time(text: str | None) -> str | None:
    """The time, None if it is none."""
    try:
        return text if text and epoch_seconds(text) else None
    except ValueError:
        return None


def body(scaler: Scaler) -> dict[str, Any]:
    """The object to be created. Its operator makes the job its owner."""
    spec: dict[str, Any] = {"selector": {"name": scaler.job}}
    if scaler.kind == "ScaleIn":
        spec["toDelete"] = {"podNames": list(scaler.pods)}
    else:
        spec |= {"toAdd": {"count": scaler.count}, "timeout": int(scaler.timeout_s)}
    metadata = {"name": scaler.name, "namespace": scaler.namespace, "labels": {MANAGED_BY: names.EXTENDER}}
    return {"apiVersion": API_VERSION, "kind": scaler.kind, "metadata": metadata, "spec": spec}
