"""The isolation in force on this node, found out again with each reading of the machine.

It falls at once when a container runs without the limit that it was given, and stays down until driver or toolkit
change (or the library, if that was to limit it), or the plugin starts anew: what the node seemed to prove was
disproved.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from deviceplugin.cluster import Kind
from deviceplugin.isolation import levels
from deviceplugin.isolation.checks import Limiter
from deviceplugin.isolation.levels import Facts, Mode
from deviceplugin.isolation.probe import Probe
from deviceplugin.machine import Machine
from protos.contract.isolation import PROMISED, Isolation
from protos.contract.reason import Reason

log = structlog.get_logger()
LACKING = "IsolationLacking"
UNREAD = Isolation(why="the GPUs of this node were not read yet")


class Watch:
    """What parts of this node's GPUs get. `now` is None where the operator asks for none."""

    def __init__(self, mode: Mode, probe: Probe, tell: Callable[[str, str, Kind], Awaitable[None]]) -> None:
        """`tell` posts an Event about the node: its reason, a sentence and its kind."""
        self.mode, self._probe, self._tell = mode, probe, tell
        self.now: Isolation | None = None if mode is Mode.OFF else UNREAD
        self._facts: Facts | None = None
        self._refuted: dict[Limiter, tuple[str, tuple[str, ...]]] = {}
        """What a container has shown against who was to limit it, and the versions then."""
        self._untold: Reason | None = None

    async def look(self, machine: Machine) -> None:
        """Find out what the node proves, with this reading of its machine."""
        if self.mode is Mode.OFF:
            return
        facts = await asyncio.to_thread(self._probe.facts, machine)
        for by, (_, before) in list(self._refuted.items()):
            versions = _versions(facts, by)
            if all(versions) and versions != before:
                del self._refuted[by]
        self._facts = facts
        self._set()

    def refute(self, by: Limiter, why: str) -> bool:
        """Note what a container has shown against who was to limit it; returns whether the isolation fell by it."""
        if self.now is None or self._facts is None:
            return False
        before = self.now.memory
        self._refuted.setdefault(by, (why, _versions(self._facts, by)))
        self._set()
        return before == by

    def _set(self) -> None:
        before, shown = self.now or PROMISED, {by: why for by, (why, _) in self._refuted.items()}
        found = levels.isolation(self._facts or Facts(), shown)
        if found == before:
            return
        self.now = found
        log.info("isolation", level=str(found), why=found.why)
        fell = bool(before.memory) and not found.memory
        lacking = self.mode in (Mode.DRIVER, Mode.LIBRARY) and not found.memory
        self._untold = Reason(LACKING, _sentence(found), found.why) if fell or lacking else None

    async def tell(self) -> None:
        """Post on the node what is less than it was, or than the operator wants; each change once."""
        told, self._untold = self._untold, None
        if told is not None:
            await self._tell(told.code, str(told), "Warning")


def _versions(facts: Facts, by: Limiter) -> tuple[str, ...]:
    """What may change so that what was shown against it holds no longer."""
    if by == "driver":
        return facts.driver, facts.toolkit
    return (facts.library.mark if facts.library else "",)


def _sentence(found: Isolation) -> str:
    return f"parts of this node's GPUs have {found}; pods that demand more do not start here"
