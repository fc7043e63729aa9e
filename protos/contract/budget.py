"""PodDisruptionBudgets, which evictions respect. Source: policy/v1 PodDisruptionBudget."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from protos.contract.objects import Int32, ObjectMeta, Pod
from protos.contract.selector import Selector

API_VERSION, KIND, PLURAL = "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"


class Spec(msgspec.Struct, frozen=True):
    """A spec without a selector selects no pods."""

    selector: Selector | None = None


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The status by the disruption controller."""

    disruptions_allowed: Int32 = 0


class Budget(msgspec.Struct, frozen=True):
    """A policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta
    spec: Spec = Spec()
    status: Status = Status()

    def holds(self, pod: Pod) -> bool:
        """Whether it limits the pod's eviction, which needs a running pod. Source: registry/core/pod eviction.go."""
        running = pod.status.phase == "Running"
        return running and self.guards(pod.metadata.namespace, pod.metadata.labels)

    def guards(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether it selects a running pod."""
        selector = self.spec.selector
        return namespace == self.metadata.namespace and selector is not None and selector.selects(labels)


class Budgets(msgspec.Struct, frozen=True):
    """A PodDisruptionBudgetList."""

    items: tuple[Budget, ...] = ()


decode = msgspec.json.Decoder(Budget).decode
"""A budget from its JSON; raises msgspec.DecodeError."""
