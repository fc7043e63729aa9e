"""Whether kube-scheduler's questions are answered: only with complete books, and only by the leader."""

import asyncio
import contextlib
from collections.abc import Callable

PATIENCE_S = 3.0
"""How long a question waits at a closed gate; less than the 5 s after which kube-scheduler gives up."""


class Gate:
    """Open, or closed with a reason. It starts closed."""

    def __init__(self, turned: Callable[[bool], None]) -> None:
        """`turned` is called with whether it is open, now and at each change."""
        self._turned, self._patience_s = turned, PATIENCE_S
        self._opened = asyncio.Event()
        self._final = False
        self.why = "the cluster's pods and nodes are still being listed"
        """Why it is closed, "" when it is open."""
        self.knock: Callable[[], None] = lambda: None
        """Called when a question finds the gate closed: its kube-scheduler takes us for the leader."""
        turned(False)

    def open(self) -> None:
        if self._final or not self.why:
            return
        self.why = ""
        self._turned(True)
        self._opened.set()

    def close(self, why: str, *, final: bool = False) -> None:
        """Close it. After a final close it never opens again, and no question waits."""
        if self._final:
            return
        was_open, self._final, self.why = not self.why, final, why
        self._opened.clear()
        if was_open:
            self._turned(False)

    async def passed(self) -> bool:
        """Whether the question may be answered. It waits a little for a gate that may open."""
        if self.why and not self._final:
            self.knock()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._opened.wait(), self._patience_s)
        return not self.why
