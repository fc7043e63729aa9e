"""Fair shares: one resource is divided among the queues that request it. Pure arithmetic.

Each queue gets its guarantee first, as far as it requests it, then its deserved amount. What is left goes by weight
(weighted max-min fairness, "water-filling") to the highest priority first, until each queue has what it requests. If
guarantees or deserved amounts exceed what there is, each queue gets the same part of its own. No queue gets more than
it requests. The share of a queue is its largest part of a fair share, over all resources.

Sources: Ghodsi et al., Dominant Resource Fairness, NSDI 2011 (the largest part counts); Volcano's plugins proportion
(weights, iterated until no queue wants more) and capacity (deserved, guarantee); KAI-Scheduler (quota first, then tiers
of priority, by over-quota weight); Koordinator (minimums scaled down where they are more than there is).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class QueueDemand(NamedTuple):
    """What one queue requests of a resource, and what it may claim of that."""

    asked: float
    weight: float = 1.0
    priority: int = 0
    guarantee: float = 0.0
    deserved: float = 0.0


def divide(amount: float, claims: Sequence[QueueDemand]) -> list[float]:
    """The fair share of each queue of this amount; their sum is at most the amount."""
    asked, due, left = [claim.asked for claim in claims], [0.0] * len(claims), amount
    for promised in (
        [claim.guarantee for claim in claims],
        [max(claim.guarantee, claim.deserved) for claim in claims],
    ):
        if any(promised):
            left -= _fill(left, list(map(min, asked, promised)), promised, due, range(len(claims)))
    weights = [claim.weight for claim in claims]
    tiers: dict[int, list[int]] = {}
    for i, claim in enumerate(claims):
        tiers.setdefault(claim.priority, []).append(i)
    for priority in sorted(tiers, reverse=True):
        left -= _fill(left, asked, weights, due, tiers[priority])
    return due


def _fill(
    amount: float, limits: Sequence[float], weights: Sequence[float], due: list[float], queues: Iterable[int]
) -> float:
    """Add to the shares of these queues by weight, each up to its limit; return how much was given."""
    lacking = [(limits[i] - due[i], i) for i in queues if limits[i] > due[i]]
    lacking.sort(key=lambda each: each[0] / weights[each[1]])
    weight, left = sum(weights[i] for _, i in lacking), amount
    for lack, i in lacking:
        given = max(0.0, min(lack, left, left * weights[i] / weight if weight > 0 else left))
        due[i] += given
        left -= given
        weight -= weights[i]
    return amount - left


def part(allocated: Mapping[str, int], due: Mapping[str, float]) -> float:
    """What part of its fair share a queue has: the largest over the resources; infinity if it has what is not due."""
    most = 0.0
    for resource, fair in due.items():
        had = allocated.get(resource, 0)
        if had:
            most = max(most, had / fair if fair > 0 else float("inf"))
    return most
