"""ET-operator's kinds: TrainingJob, ScaleIn and ScaleOut.

A running TrainingJob can change its workers. A ScaleIn names workers to delete, a ScaleOut has a number of workers to
add. The operator executes one at a time, and reports the result in conditions.
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
"""The role of elastic members."""
ScalerKind = Literal["ScaleIn", "ScaleOut"]
PLURALS: dict[ScalerKind, str] = {"ScaleIn": "scaleins", "ScaleOut": "scaleouts"}
TIMEOUT_S = 60.0
"""Default timeout of a ScaleOut whose workers do not all run."""
"""The label of the ScaleIns and ScaleOuts that the extender creates."""


class TrainingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded TrainingJob."""

    namespace: str
    name: str
    uid: str
    least: int
    """Minimal number of workers of the running job."""
    most: int
    """Maximal number of workers, by default the initial one."""
    running: bool
    """It runs, and no scaling is under way."""


class Scaler(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded ScaleIn or ScaleOut."""

    kind: ScalerKind
    namespace: str
    name: str
    job: str
    uid: str = ""
    ours: bool = False
    created: str | None = None
    """RFC 3339."""
    pods: tuple[str, ...] = ()
    """The named workers to delete or add."""
    count: int = 0
    """The number of workers to delete or add."""
    timeout_s: float = TIMEOUT_S
    begun: bool = False
    """The operator has begun to execute it."""
    outcome: Literal["", "done", "failed"] = ""
    """Its result, "" before its end."""


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
    scaler = _SCALER.decode(raw)
    meta, spec, status = scaler.metadata, scaler.spec, scaler.status or _Status()
    workers = (spec.to_delete if kind == "ScaleIn" else spec.to_add) or _Workers()
    reported = status.to_delete_pods if kind == "ScaleIn" else status.add_pods
    pods = reported or workers.pod_names or ()
    true = {condition.type for condition in status.conditions or () if condition.status == "True"}
    return Scaler(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        job=spec.selector.name,
        uid=meta.uid,
        ours=meta.labels.get(names.MANAGED_BY) == names.EXTENDER,
        created=_time(meta.creation_timestamp),
        pods=pods[: SCALED.most],
        count=MEMBERS.capped(len(pods)) or MEMBERS.capped(workers.count or 0),
        timeout_s=TIMEOUT_S if spec.timeout is None else float(TIME.capped(spec.timeout)),
        begun="Scaling" in true,
        outcome="done" if "ScaleSucceeded" in true else "failed" if true & {"ScaleFailed", "ScaleAborted"} else "",
    )


def _time(text: str | None) -> str | None:
    """The timestamp, None if it is invalid."""
    try:
        return text if text and epoch_seconds(text) else None
    except ValueError:
        return None


def body(scaler: Scaler) -> dict[str, Any]:
    """The object to create. The operator makes the job its owner."""
    spec: dict[str, Any] = {"selector": {"name": scaler.job}}
    if scaler.kind == "ScaleIn":
        spec["toDelete"] = {"podNames": list(scaler.pods)}
    else:
        spec |= {"toAdd": {"count": scaler.count}, "timeout": int(scaler.timeout_s)}
    metadata = {"name": scaler.name, "namespace": scaler.namespace, "labels": {names.MANAGED_BY: names.EXTENDER}}
    return {"apiVersion": API_VERSION, "kind": scaler.kind, "metadata": metadata, "spec": spec}
