"""Why something was refused: one value that feeds the scheduler's message, the Event, the log and the metric."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Reason(msgspec.Struct, frozen=True):
    """A refusal.

    `code` names its kind in CamelCase (metric label, Event reason). `sentence` goes to kube-scheduler, which writes it
    into the pod's condition: it must be the same on every attempt, so it never carries a count that moves or a node's
    name. `numbers` is the arithmetic for people (Event, inspect, explain) and may change at any time.
    """

    code: str
    sentence: str
    numbers: str = ""

    def __str__(self) -> str:
        return f"{self.sentence}: {self.numbers}" if self.numbers else self.sentence


def listed(words: Iterable[str], most: int, rest: str = "more") -> str:
    """These, for people: the first `most` of them, and how many more."""
    named = list(words)
    beyond = [f"and {len(named) - most} {rest}"] if len(named) > most else []
    return ", ".join(named[:most] + beyond)
