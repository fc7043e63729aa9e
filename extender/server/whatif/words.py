"""The verdicts of what-if: in short, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from extender.engine.policies.whatif.question import Outcome
from extender.server import verdicts
from extender.wire.answers import Verdict
from protos.contract.reason import listed

WORST_FIRST = ("never", "waits", "later", "preempts", "now")
NODES = 5
"""Nodes that a headline names."""
SUBMIT = "submit it"
ADVICE = {
    "now": SUBMIT,
    "preempts": f"{SUBMIT}, or lower its priority to spare these pods",
    "later": f"{SUBMIT}, and it waits in line, or request less",
    "never": "request less, or add nodes on which it fits",
}
"""What to do, by the state of an outcome; for others by the code of the reason."""


def verdict(outcome: Outcome, seconds: float) -> Verdict:
    """The verdict on one workload; `seconds`: until it starts."""
    state = state_of(outcome)
    code = outcome.reason.code if outcome.reason is not None else ""
    advice = ADVICE.get(outcome.state) or verdicts.what_to_do(code)
    return Verdict(state=state, headline=_headline(outcome, state, seconds), advice=advice)


def state_of(outcome: Outcome) -> str:
    """Its state; `never` if it cannot start as it is."""
    never = outcome.reason is not None and outcome.reason.code.startswith(verdicts.NEVER)
    return "never" if never and outcome.state == "waits" else outcome.state


def _headline(outcome: Outcome, state: str, seconds: float) -> str:
    match state:
        case "now":
            return f"would start now on {_nodes(outcome)}"
        case "preempts":
            count = sum(len(unit.victims) for unit in outcome.victims)
            pods = f"{count} pods are" if count > 1 else "1 pod is"
            return f"would start now on {_nodes(outcome)}, once {pods} evicted for it"
        case "later":
            when = f"in about {duration(seconds)}" if seconds >= 1 else "soon"
            return f"would start {when} on {_nodes(outcome)}"
    if outcome.state == "never":
        return "would never start on these nodes, not even if they were empty"
    why = outcome.reason.sentence if outcome.reason is not None else "nobody knows why"
    return f"would {'never start' if state == 'never' else 'wait'}, because {why}"


def _nodes(outcome: Outcome) -> str:
    return listed(sorted({assignment.node for assignment in outcome.assignments.values()}), NODES)


def of_all(told: Sequence[Verdict]) -> Verdict:
    """The verdict on all workloads: that of the worst, and how many start now."""
    worst = min(told, key=lambda each: WORST_FIRST.index(each.state))
    if len(told) == 1:
        return worst
    now = sum(verdict.state == "now" for verdict in told)
    many = f"{now} of" if now < len(told) else "all"
    headline = f"{many} {len(told)} workloads would start now"
    return Verdict(state=worst.state, headline=headline, advice=worst.advice)


def duration(seconds: float) -> str:
    """Seconds in one unit: 40 s, 12 min, 3 h, 2 d."""
    for size, unit in ((172_800, "d"), (7200, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds / {'d': 86_400, 'h': 3600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"
