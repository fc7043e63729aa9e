"""PodDisruptionBudgets: whether pods may be evicted together, answered before the first eviction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence

from extender.engine.policies.preemption.units import Unit, Victim, pieces, price
from protos.contract.budget import Budget
from protos.contract.objects import ObjectMeta, Pod


def forbidden(pods: Sequence[Pod], budgets: Iterable[Budget]) -> list[str]:
    """Why these pods may not all be evicted; empty if they may."""
    why = []
    guards: dict[str, list[str]] = {name(pod.metadata): [] for pod in pods}
    for budget in budgets:
        guarded = [name(pod.metadata) for pod in pods if budget.holds(pod)]
        for pod_name in guarded:
            guards[pod_name].append(name(budget.metadata))
        allowed = budget.status.disruptions_allowed
        if len(guarded) > allowed:
            allows = f"PodDisruptionBudget {name(budget.metadata)} allows {allowed} eviction{'s' * (allowed != 1)}"
            why.append(f"{allows}, and the moves are {len(guarded)} of its pods: {', '.join(guarded)}")
    return why + [_guarded_by(pod_name, by) for pod_name, by in guards.items() if len(by) > 1]


def _guarded_by(pod: object, budgets: Iterable[str]) -> str:
    return f"{pod} is guarded by {' and '.join(budgets)}: then no eviction passes"


def name(metadata: ObjectMeta) -> str:
    """NAMESPACE/NAME."""
    return f"{metadata.namespace}/{metadata.name}"


class Register:
    """All PodDisruptionBudgets in the cluster."""

    def __init__(self) -> None:
        self._budgets: dict[str, dict[str, Budget]] = {}
        """By namespace and name, in the order of names."""
        self.turn = 0
        """Counts changes."""

    def put(self, budget: Budget) -> None:
        namespace = budget.metadata.namespace
        here = {**self._budgets.get(namespace, {}), budget.metadata.name: budget}
        self._budgets[namespace] = dict(sorted(here.items()))
        self.turn += 1

    def drop(self, namespace: str, name: str) -> None:
        here = self._budgets.get(namespace, {})
        here.pop(name, None)
        if not here:
            self._budgets.pop(namespace, None)
        self.turn += 1

    def forbidden(
        self, chosen: Sequence[Unit], units: Sequence[Unit], going: Iterable[Victim] = ()
    ) -> Generator[int, None, dict[str, str]]:
        """Which of `units` may not go if `chosen` may not go together, by `who`, and why; empty if they may.

        Of the chosen the cheapest go first, as many as the budgets allow; the others that a budget guards stay. Victims
        that are `going` for others have used up their part of the budgets, even if these do not show it yet.
        """
        left = Counter(
            {name(b.metadata): b.status.disruptions_allowed for here in self._budgets.values() for b in here.values()}
        )
        for victim in going:
            left.subtract(self._guards(victim))
        found: dict[str, str] = {}
        together: set[str] = set()
        for piece in pieces(chosen):
            for unit in piece:
                if why := self._why(unit, left):
                    found[unit.who] = why
                else:
                    together.add(unit.who)
                    left.subtract(guard for victim in unit.victims for guard in self._guards(victim))
            yield price(piece)
        for piece in pieces(units if found else ()):
            for unit in piece:
                if unit.who not in together and unit.who not in found and (why := self._why(unit, left)):
                    found[unit.who] = why
            yield price(piece)
        return found

    def _why(self, unit: Unit, left: Mapping[str, int]) -> str:
        """Why a unit may not go if so many evictions are left; "" if it may."""
        counts: Counter[str] = Counter()
        for victim in unit.victims:
            guards = self._guards(victim)
            if len(guards) > 1:
                return _guarded_by(victim.ref, guards)
            counts.update(guards)
        for guard, count in counts.items():
            if count > left[guard]:
                allowed = max(0, left[guard])
                allows = f"PodDisruptionBudget {guard} allows {allowed} more eviction{'s' * (allowed != 1)}"
                return f"{allows}, and {unit.who} has {count} of its pods"
        return ""

    def _guards(self, victim: Victim) -> list[str]:
        if not victim.guarded:
            return []
        budgets = self._budgets.get(victim.ref.namespace, {})
        return [name(b.metadata) for b in budgets.values() if b.guards(victim.ref.namespace, victim.labels)]
