"""20,000 nodes of 8 GPUs and 100,000 bound pods: decisions and plans in the process, and the start against a real API
server. It is measured only when it is asked for.
"""

from __future__ import annotations

from tests.bench import decisions, planning, start
from tests.bench.fleet import DEFAULTS
from tests.bench.report import Figure

NODES, PODS, CHECKED = 20_000, 100_000, 200
"""kube-scheduler checks one in a hundred in layout own."""
FILTER_MS, PLAN_MS, START_S, MIB = 10.0, 300.0, 45.0, 1536.0


def run() -> list[Figure]:
    """All of it."""
    return [
        *decisions.figures(NODES, PODS, CHECKED, mark=FILTER_MS),
        *decisions.figures(NODES, PODS, NODES, mark=FILTER_MS),
        *planning.figures(NODES, PODS, "", DEFAULTS, mark=PLAN_MS),
        *start.figures(NODES, PODS, START_S, MIB),
    ]
