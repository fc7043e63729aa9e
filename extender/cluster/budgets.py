"""PodDisruptionBudgets: followed as far as the API server shows them to us, so that none is broken by a plan.

Where they are not shown, the API server alone refuses evictions.
"""

import structlog

from extender.cluster.optional import Declared, Source
from extender.engine.types.events import BudgetGone, BudgetSeen, Event
from protos.contract import budget
from protos.contract.budget import API_VERSION, KIND, PLURAL, Budget
from protos.kube.changes import Ref

log = structlog.get_logger(__name__)


def source() -> Source:
    """The kind."""
    return Source(API_VERSION, PLURAL, KIND, budget.decode, _Declared())


class _Declared(Declared):
    """The budgets that there are."""

    def seen(self, _: Ref, found: Budget) -> Event:
        return BudgetSeen(found)

    def gone(self, ref: Ref) -> Event:
        return BudgetGone(ref.namespace, ref.name)

    def unreadable(self, ref: Ref, error: Exception) -> None:
        log.warning("budget_not_read", budget=f"{ref.namespace}/{ref.name}", error=str(error))
