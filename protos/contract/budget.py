"""PodDisruptionBudgets, as far as evictions must know them. Source: policy/v1 PodDisruptionBudget."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from protos.contract.objects import Int32, ObjectMeta, Pod
from protos.contract.selector import Selector

API_VERSION, KIND, PLURAL = "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"


class Spec(msgspec.Struct, frozen=True):
    """Without a selector it selects nothing."""

    selector: Selector | None = None


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """What the disruption controller says."""

    disruptions_allowed: Int32 = 0


class Budget(msgspec.Struct, frozen=True):
    """A policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta
    spec: Spec = Spec()
    status: Status = Status()

    def holds(self, pod: Pod) -> bool:
        """Whether it guards the pod. One that does not run may always go. Source: registry/core/pod eviction.go."""
        running = pod.status.phase == "Running"
        return running and self.guards(pod.metadata.namespace, pod.metadata.labels)

    def guards(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """The same of one that runs."""
        selector = self.spec.selector
        return namespace == self.metadata.namespace and selector is not None and selector.selects(labels)


class Budgets(msgspec.Struct, frozen=True):
    """A PodDisruptionBudgetList."""

    items: tuple[Budget, ...] = ()


_decoder = msgspec.json.Decoder(Budget)


def decode(raw: bytes) -> Budget:
    """A budget from its JSON; raises msgspec.DecodeError."""
    return _decoder.decode(raw)
