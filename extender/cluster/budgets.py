"""PodDisruptionBudgets: followed as far as the API server shows them to us, so that none is broken by a plan.

Where they are not shown, the API server alone refuses evictions.
"""

from collections.abc import Iterable

import structlog

from extender.cluster.feed import Kind
from extender.cluster.optional import Source
from extender.engine.effects import BudgetGone, BudgetSeen, Event
from protos.contract import budget
from protos.contract.budget import API_VERSION, KIND, PLURAL, Budget
from protos.kube.changes import Ref

log = structlog.get_logger(__name__)


def source() -> Source:
    """The kind."""
    return Source(API_VERSION, PLURAL, KIND, budget.decode, _Declared())


class _Declared(Kind):
    """The budgets that there are."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    def seen(self, ref: Ref, found: Budget) -> Event:
        self._known.add((ref.namespace, ref.name))
        return BudgetSeen(found)

    def gone(self, ref: Ref) -> Event:
        self._known.discard((ref.namespace, ref.name))
        return BudgetGone(ref.namespace, ref.name)

    def unreadable(self, ref: Ref, error: Exception) -> None:
        log.warning("budget_not_read", budget=f"{ref.namespace}/{ref.name}", error=str(error))

    def forgotten(self) -> Iterable[Event]:
        gone = [BudgetGone(*key) for key in sorted(self._known)]
        self._known.clear()
        return gone
