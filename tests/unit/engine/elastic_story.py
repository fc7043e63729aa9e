"""A world with one elastic job: ET-operator's TrainingJob and its workers, as the engine meets them."""

from __future__ import annotations

from typing import Any

import msgspec

from extender.engine.types.effects import Scale, Unscale
from extender.engine.types.events import GroupSeen, ScalerSeen, ScalersServed
from gangfilter import podgroups
from gangfilter.group import GroupKey
from protos.contract import training
from protos.contract.objects import Node, Pod
from protos.contract.training import API_VERSION, Scaler, TrainingJob
from tests.builders import a_pod
from tests.unit.engine.gang_story import at_wall
from tests.unit.engine.preemption_story import PreemptionStory, urgent

KEY = GroupKey("default", "job")
KIND = next(kind for kind in podgroups.KINDS if kind.kind == training.JOB_KIND)


def a_worker(index: int, role: str = "worker", **fields: Any) -> Pod:
    """A pod of the job that requests a whole GPU; the launcher requests none."""
    name = f"job-worker-{index}" if role == "worker" else "job-launcher"
    labels = {"group-name": training.GROUP, "training-job-name": "job", "training-job-role": role}
    owner = {"kind": "TrainingJob", "name": "job", "uid": "uid-job", "controller": True}
    return a_pod(name, whole=int(role == "worker"), labels=labels, ownerReferences=[owner], **fields)


class ElasticStory(PreemptionStory):
    """Its job has `replicas` workers at first, `least` at least and `most` at most."""

    def __init__(self, *nodes: Node, replicas: int = 4, least: int = 2, most: int = 6, **settings: Any) -> None:
        self.replicas, self.least, self.most = replicas, least, most
        self.seen = 0
        """In how many effects scalers were looked for."""
        self.scalers: dict[str, Scaler] = {}
        """By name, as the API server has them."""
        super().__init__(*nodes, **settings)
        self.declare()

    def declare(self, *, running: bool = True) -> None:
        """The job as the API server shows it."""
        worker = {"replicas": self.replicas, "minReplicas": self.least, "maxReplicas": self.most}
        raw = msgspec.json.encode(
            {
                "metadata": {"name": "job", "namespace": "default", "uid": "uid-job"},
                "spec": {"etReplicaSpecs": {"launcher": {}, "worker": worker}},
                "status": {"phase": "Running" if running else "Created"},
            }
        )
        seen = GroupSeen(API_VERSION, *podgroups.declaration(KIND, raw), training.decode_job(raw))
        self.groups = [seen, ScalersServed("ScaleIn", yes=True), ScalersServed("ScaleOut", yes=True)]
        self.groups += [ScalerSeen(scaler) for scaler in self.scalers.values()]
        self.tell(*self.groups)

    @property
    def job(self) -> TrainingJob:
        return self.engine.elastic.scalers.jobs[KEY]

    def run_job(self) -> None:
        """The workers start first, then the launcher; they have run for a while."""
        self.start(*(a_worker(i) for i in range(self.replicas)))
        launcher = a_worker(0, "launcher")
        self.create(launcher)
        assert self.come(launcher.metadata.name) == ["flying"]
        self.land()
        self.later(11)

    def asked(self) -> list[Scaler]:
        """The scalers requested since the last call, each once; the API server has them now, and shows them."""
        new, self.seen = self.done[self.seen :], len(self.done)
        found = {e.scaler.name: e.scaler for e in new if isinstance(e, Scale) and e.scaler.name not in self.scalers}
        for name, scaler in found.items():
            self.scalers[name] = msgspec.structs.replace(scaler, uid=f"uid-{name}", created=at_wall(self.now))
            self.tell(ScalerSeen(self.scalers[name]))
        self.groups = [e for e in self.groups if not isinstance(e, ScalerSeen)]
        self.groups += [ScalerSeen(scaler) for scaler in self.scalers.values()]
        return list(found.values())

    def finish(self, scaler: Scaler, outcome: Any = "done") -> None:
        """The operator says how it ended."""
        ended = msgspec.structs.replace(self.scalers[scaler.name], outcome=outcome)
        self.scalers[scaler.name] = ended
        self.tell(ScalerSeen(ended))

    def untold(self) -> list[str]:
        """The scalers whose deletion was requested."""
        return [e.scaler.name for e in self.done if isinstance(e, Unscale)]

    def presses(self, whole: int = 1) -> None:
        """A single pod of higher priority waits for whole GPUs."""
        self.waits(urgent(a_pod("urgent", whole=whole), 1000))
