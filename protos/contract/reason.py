"""The reason of a refusal: one value for the scheduler's message, the Event, the log and the metric."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Reason(msgspec.Struct, frozen=True):
    """The reason of a refusal.

    `code` is its kind in CamelCase (metric label, Event reason). kube-scheduler writes `sentence` into the pod's
    condition. It must be the same on every attempt, so it has no varying count and no name of a node. `numbers` has the
    details for users (Event, inspect, explain) and may change at any time.
    """

    code: str
    sentence: str
    numbers: str = ""

    def __str__(self) -> str:
        return f"{self.sentence}: {self.numbers}" if self.numbers else self.sentence


def listed(words: Iterable[str], most: int, rest: str = "more") -> str:
    """The first `most` words for users, and the number of further ones."""
    named = list(words)
    beyond = [f"and {len(named) - most} {rest}"] if len(named) > most else []
    return ", ".join(named[:most] + beyond)


class AskError(ValueError):
    """An invalid request of a pod, with the sentence for its user."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = Reason(code, sentence)
