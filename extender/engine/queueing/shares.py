"""What is due to each of several queues: a division of one resource among those that ask for it. Pure arithmetic.

In this order: of what is guaranteed to each, as much as it asks; then of what it deserves; then what is left goes by
weight (weighted max-min fairness, "water-filling"), to the highest priority first, until each has what it asks. Where
guarantees, or what is deserved, are more than there is, each gets the same part of its own. Nobody is due more than it
asks. One resource at a time; what a queue has of its due is its largest part over all resources.

Sources: Ghodsi et al., Dominant Resource Fairness, NSDI 2011 (the largest part counts); Volcano's plugins proportion
(weights, iterated until nobody wants more) and capacity (deserved, guarantee); KAI-Scheduler (quota first, then tiers
of priority, by over-quota weight); Koordinator (minimums scaled down where they are more than there is).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class QueueDemand(NamedTuple):
    """What one queue asks of a resource, and what it may claim of that."""

    asked: float
    weight: float = 1.0
    priority: int = 0
    guarantee: float = 0.0
    deserved: float = 0.0


def divide(amount: float, claims: Sequence[QueueDemand]) -> list[float]:
    """What is due to each of these of so much; in all no more than there is, and to none more than it asks."""
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
    amount: float, upto: Sequence[float], weights: Sequence[float], due: list[float], who: Iterable[int]
) -> float:
    """Give these more by weight, each up to so much, until nothing is left; returns how much was given."""
    lacking = [(upto[i] - due[i], i) for i in who if upto[i] > due[i]]
    lacking.sort(key=lambda each: each[0] / weights[each[1]])
    weight, left = sum(weights[i] for _, i in lacking), amount
    for lack, i in lacking:
        given = max(0.0, min(lack, left, left * weights[i] / weight if weight > 0 else left))
        due[i] += given
        left -= given
        weight -= weights[i]
    return amount - left


def part(allocated: Mapping[str, int], due: Mapping[str, float]) -> float:
    """How much of its due somebody has: the largest part over the resources; more than 1 is more than its due.

    Who has something where nothing is due has infinitely much.
    """
    most = 0.0
    for resource, fair in due.items():
        had = allocated.get(resource, 0)
        if had:
            most = max(most, had / fair if fair > 0 else float("inf"))
    return most
