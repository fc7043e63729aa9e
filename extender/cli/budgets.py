"""PodDisruptionBudgets: whether all these pods may be evicted together. Pure: objects in, sentences out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from extender.engine.intree import Requirement
from protos.contract.objects import ObjectMeta, Pod


class Selector(msgspec.Struct, frozen=True, rename="camel"):
    """A LabelSelector; an empty one selects every pod. Source: policy/v1 PodDisruptionBudgetSpec."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def selects(self, pod: Pod) -> bool:
        labels = pod.metadata.labels
        exact = all(labels.get(key) == value for key, value in self.match_labels.items())
        return exact and all(requirement.met(labels) for requirement in self.match_expressions)


class Spec(msgspec.Struct, frozen=True):
    """Without a selector it selects nothing."""

    selector: Selector | None = None


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """What the disruption controller says."""

    disruptions_allowed: int = 0


class Budget(msgspec.Struct, frozen=True):
    """A policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta
    spec: Spec = Spec()
    status: Status = Status()

    def holds(self, pod: Pod) -> bool:
        """Whether it guards the pod. One that does not run may always go. Source: registry/core/pod eviction.go."""
        mine = pod.metadata.namespace == self.metadata.namespace and pod.status.phase == "Running"
        return mine and self.spec.selector is not None and self.spec.selector.selects(pod)


class Budgets(msgspec.Struct, frozen=True):
    """A PodDisruptionBudgetList."""

    items: tuple[Budget, ...] = ()


def forbidden(pods: Sequence[Pod], budgets: Iterable[Budget]) -> list[str]:
    """Why these pods may not all be evicted; nothing if they may."""
    said = []
    guards: dict[str, list[str]] = {name(pod.metadata): [] for pod in pods}
    for budget in budgets:
        meant = [name(pod.metadata) for pod in pods if budget.holds(pod)]
        for each in meant:
            guards[each].append(name(budget.metadata))
        allowed = budget.status.disruptions_allowed
        if len(meant) > allowed:
            who = f"PodDisruptionBudget {name(budget.metadata)} allows {allowed} eviction{'s' * (allowed != 1)}"
            said.append(f"{who}, and the moves are {len(meant)} of its pods: {', '.join(meant)}")
    several = {pod: by for pod, by in guards.items() if len(by) > 1}
    return said + [f"{pod} is guarded by {' and '.join(by)}: then no eviction passes" for pod, by in several.items()]


def name(metadata: ObjectMeta) -> str:
    """NAMESPACE/NAME."""
    return f"{metadata.namespace}/{metadata.name}"
