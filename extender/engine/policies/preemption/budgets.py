"""PodDisruptionBudgets: whether pods may be evicted together, told before the first of them is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence

from extender.engine.policies.preemption.units import Unit, Victim, pieces, price
from protos.contract.budget import Budget
from protos.contract.objects import ObjectMeta, Pod


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


class Register:
    """The budgets that there are."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Budget]] = {}
        """By namespace and name, in their order."""
        self.turn = 0
        """Counts what changed."""

    def put(self, budget: Budget) -> None:
        namespace = budget.metadata.namespace
        here = {**self._known.get(namespace, {}), budget.metadata.name: budget}
        self._known[namespace] = dict(sorted(here.items()))
        self.turn += 1

    def drop(self, namespace: str, name: str) -> None:
        known = self._known.get(namespace, {})
        known.pop(name, None)
        if not known:
            self._known.pop(namespace, None)
        self.turn += 1

    def forbidden(
        self, chosen: Sequence[Unit], units: Sequence[Unit], going: Iterable[Victim] = ()
    ) -> Generator[int, None, dict[str, str]]:
        """What of `units` may not go if `chosen` may not go together, by `who`, and why; nothing if they may.

        Of the chosen the cheapest go first, as many as the budgets allow; what else they guard stays. Those that are
        `going` for others already have used up their part of the budgets, though these may not show it yet.
        """
        left = Counter(
            {name(b.metadata): b.status.disruptions_allowed for of in self._known.values() for b in of.values()}
        )
        for victim in going:
            left.subtract(self._named(victim))
        found: dict[str, str] = {}
        together: set[str] = set()
        for some in pieces(chosen):
            for unit in some:
                if why := self._why(unit, left):
                    found[unit.who] = why
                else:
                    together.add(unit.who)
                    left.subtract(guard for victim in unit.victims for guard in self._named(victim))
            yield price(some)
        for some in pieces(units if found else ()):
            for unit in some:
                if unit.who not in together and unit.who not in found and (why := self._why(unit, left)):
                    found[unit.who] = why
            yield price(some)
        return found

    def _why(self, unit: Unit, left: Mapping[str, int]) -> str:
        """Why a unit may not go where so many evictions are left; "" if it may."""
        meant: Counter[str] = Counter()
        for victim in unit.victims:
            guards = self._named(victim)
            if len(guards) > 1:
                return f"{victim.ref} is guarded by {' and '.join(guards)}: then no eviction passes"
            meant.update(guards)
        for guard, count in meant.items():
            if count > left[guard]:
                allowed = max(0, left[guard])
                who = f"PodDisruptionBudget {guard} allows {allowed} more eviction{'s' * (allowed != 1)}"
                return f"{who}, and {unit.who} has {count} of its pods"
        return ""

    def _named(self, victim: Victim) -> list[str]:
        """The budgets that guard it."""
        if not victim.guarded:
            return []
        budgets = self._known.get(victim.ref.namespace, {})
        return [name(b.metadata) for b in budgets.values() if b.guards(victim.ref.namespace, victim.labels)]
