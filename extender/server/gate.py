"""Whether the scheduler's questions are answered: only with complete books, and only by who leads."""

import asyncio
import contextlib
from collections.abc import Callable

PATIENCE_S = 3.0
"""How long a question waits at a closed gate; less than the 5 s after which kube-scheduler gives up."""


class Gate:
    """Closed with a reason, or open. It begins closed."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._opened = asyncio.Event()
        self._final = False
        self.why = "the cluster's pods and nodes are still being listed"
        """Why it is closed, "" when it is open."""
        self.knock: Callable[[], None] = lambda: None
        """Called when a question comes and the gate is closed: whoever asks thinks that we lead."""

    def open(self) -> None:
        if not self._final:
            self.why = ""
            self._opened.set()

    def close(self, why: str, *, final: bool = False) -> None:
        """Close it; once closed finally, nobody waits there and it does not open again."""
        if self._final:
            return
        self._final = final
        self.why = why
        self._opened.clear()

    async def passed(self) -> bool:
        """Whether the question may be answered; waits a little for a gate that may open."""
        if self.why and not self._final:
            self.knock()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._opened.wait(), self._patience_s)
        return not self.why
