"""A cluster with pending pods and gangs of some priority, in which pods are evicted as the engine says."""

from __future__ import annotations

from typing import Any

import msgspec

from extender.engine.types.effects import Evict, Report, SetAnnotation
from protos.contract import names
from protos.contract.objects import Condition, Node, Pod
from tests.builders import MAKER, a_pod
from tests.unit.engine.gang_story import GangStory
from tests.unit.engine.story import owned_by

WRITTEN = [MAKER, *owned_by(names.EXTENDER, "status", names.RESERVATION)]
REFUSED = Condition("PodScheduled", "False", "Unschedulable")


def urgent(pod: Pod, priority: int = 1000, **spec: Any) -> Pod:
    """The pod with a priority, and more of its spec."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority, **spec))


class PreemptionStory(GangStory):
    """The API server and the kubelets: annotations are written, and evicted pods end."""

    def __init__(self, *nodes: Node, **settings: Any) -> None:
        self.written = 0
        """For how many effects the annotations are written."""
        super().__init__(*nodes, **{"min_runtime_s": 10.0, **settings})

    def runs(self, pod: Pod) -> str:
        """A single pod from its creation until it runs; returns its node."""
        name = pod.metadata.name
        self.create(pod)
        assert self.come(name) == ["flying"]
        node = self.flying[name].node
        self.land(name)
        self.change(name, phase="Running")
        return node

    def waits(self, pod: Pod) -> None:
        """A single pod for which there is no room."""
        name = pod.metadata.name
        self.create(pod)
        self.come(name)
        self.change(name, conditions=(REFUSED,))

    def schedule(self) -> None:
        """kube-scheduler looks at all pending pods."""
        for name in sorted(self.pods, key=lambda name: (-(self.pods[name].spec.priority or 0), name)):
            pod = self.pods[name]
            if pod.spec.node_name or name in self.held or name in self.flying or pod.metadata.deletion_timestamp:
                continue
            if self.come(name)[0] not in ("flying", "held", "bound"):
                self.change(name, conditions=(REFUSED,))
        self.land()

    def annotate(self) -> list[str]:
        """The requested annotations are written and seen; returns the pods."""
        new, self.written = self.done[self.written :], len(self.done)
        wanted = [e for e in new if isinstance(e, SetAnnotation) and e.key == names.RESERVATION]
        written = []
        for effect in wanted:
            pod = self.pods.get(effect.pod.name)
            if pod is None:
                continue
            annotations = {k: v for k, v in pod.metadata.annotations.items() if k != effect.key}
            annotations |= {effect.key: effect.value} if effect.value is not None else {}
            if annotations != pod.metadata.annotations:
                self.change(effect.pod.name, annotations=annotations, managed=WRITTEN)
                written.append(effect.pod.name)
        return written

    def preempt(self, seconds: float = 12.0) -> list[str]:
        """Time passes, the room is reserved, and evictions are requested; returns the pods."""
        before = len(self.done)
        for _ in range(int(seconds)):
            self.later(1.0)
            self.annotate()
        return sorted({e.pod.name for e in self.done[before:] if isinstance(e, Evict)})

    def reasons(self, name: str) -> list[str]:
        """The Events of a pod."""
        return [str(e.reason) for e in self.done if isinstance(e, Report) and e.pod.name == name]


def a_single(name: str, mem: int, priority: int = 0, **fields: Any) -> Pod:
    return urgent(a_pod(name, mem=mem, **fields), priority)
