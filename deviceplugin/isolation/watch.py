"""The isolation in force on this node, found out again with each reading of the machine.

It falls at once when a container runs without the limit that it was given, and stays down until driver or toolkit
change (or the library, if that was to limit it), or the plugin starts anew: what the node seemed to prove was
disproved.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
import structlog

from deviceplugin.cluster import Kind
from deviceplugin.isolation import levels
from deviceplugin.isolation.checks import Limiter
from deviceplugin.isolation.levels import Facts, Means, Mode, Setter
from deviceplugin.isolation.probe import Probe
from deviceplugin.limits.client import Limits
from deviceplugin.machine import Machine
from protos.contract.isolation import PROMISED, Isolation
from protos.contract.reason import Reason

log = structlog.get_logger()
LACKING = "IsolationLacking"
UNREAD = Isolation(why="the GPUs of this node were not read yet")


class Watch:
    """What parts of this node's GPUs get. `now` is None where the operator asks for none."""

    def __init__(
        self,
        mode: Mode,
        probe: Probe,
        tell: Callable[[str, str, Kind], Awaitable[None]],
        limits: Limits | None = None,
    ) -> None:
        """`tell` posts an Event about the node: its reason, a sentence and its kind. `limits`: the helper, if any."""
        self.mode, self._probe, self._tell, self._limits = mode, probe, tell, limits
        self.now: Isolation | None = None if mode is Mode.OFF else UNREAD
        self._facts: Facts | None = None
        self._refuted: dict[Means, tuple[str, tuple[str, ...]]] = {}
        """What a container has shown against what was to limit it, and the versions then."""
        self._untold: Reason | None = None

    async def look(self, machine: Machine) -> None:
        """Find out what the node proves, with this reading of its machine."""
        if self.mode is Mode.OFF:
            return
        facts = await asyncio.to_thread(self._probe.facts, machine)
        if self._limits is not None:
            facts = msgspec.structs.replace(facts, helper=await self._limits.lacking())
        for means, (_, before) in list(self._refuted.items()):
            versions = _versions(facts, means)
            if all(versions) and versions != before:
                del self._refuted[means]
        self._facts = facts
        self._set()

    @property
    def setter(self) -> Setter:
        """Who sets the driver's limits of containers now, "" if nobody does."""
        if self.now is None or self.now.memory != "driver" or self._facts is None:
            return ""
        return levels.setter(self._facts, self._shown())

    def refute(self, by: Limiter, why: str) -> bool:
        """Note what a container has shown against who was to limit it; returns whether that changed anything."""
        means: Means | Literal[""] = "library" if by == "library" else self.setter
        if self.now is None or self._facts is None or not means:
            return False
        before = self.now, self.setter
        self._refuted.setdefault(means, (why, _versions(self._facts, means)))
        self._set()
        return before != (self.now, self.setter)

    def _shown(self) -> dict[Means, str]:
        return {means: why for means, (why, _) in self._refuted.items()}

    def _set(self) -> None:
        before, found = self.now or PROMISED, levels.isolation(self._facts or Facts(), self._shown())
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


def _versions(facts: Facts, means: Means) -> tuple[str, ...]:
    """What may change so that what was shown against it holds no longer."""
    if means == "library":
        return (facts.library.mark if facts.library else "",)
    return facts.driver, facts.toolkit


def _sentence(found: Isolation) -> str:
    return f"parts of this node's GPUs have {found}; pods that demand more do not start here"
