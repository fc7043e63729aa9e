"""What happens to a pod from its first sight until it is bound, told to whoever follows it."""

from __future__ import annotations

from extender.engine.types.effects import PodRef
from protos.contract.reason import Reason


class Observer:
    """Follows pods; this one ignores all it is told. Calls must be fast, and come from the event loop."""

    def seen(self, uid: str) -> None:
        """A pod was listed, added or modified."""

    def answered(self, uid: str, reason: Reason | None) -> None:
        """filter was answered: nodes were offered, or the reason why none was."""

    def bind_asked(self, ref: PodRef, node: str) -> None:
        """bind was asked, and was not refused at once."""

    def released(self, ref: PodRef) -> None:
        """bind is no longer held for the other members of a gang; its Binding is written now."""

    def bind_ended(self, ref: PodRef, code: str) -> None:
        """bind was answered; code `Bound` if the Binding is written."""

    def gone(self, uid: str) -> None:
        """The pod was deleted."""

    def close(self) -> None:
        """Send what is not sent yet. It may block for some seconds."""
