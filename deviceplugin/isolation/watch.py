"""The isolation in force on this node, found out again with each reading of the machine.

It falls at once when a container runs without the limit that it was given, and stays down until driver or toolkit
change, or the plugin starts anew: what the node seemed to prove was disproved.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from deviceplugin.cluster import Kind
from deviceplugin.isolation import levels
from deviceplugin.isolation.levels import Facts, Mode, Setter
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
        self._refuted: dict[Setter, str] = {}
        self._refuted_at = ("", "")
        """What containers have shown against the facts, and the versions of driver and toolkit then."""
        self._untold: Reason | None = None

    async def look(self, machine: Machine) -> None:
        """Find out what the node proves, with this reading of its machine."""
        if self.mode is Mode.OFF:
            return
        facts = await asyncio.to_thread(self._probe.facts, machine)
        if self._limits is not None:
            facts = msgspec.structs.replace(facts, helper=await self._limits.lacking())
        versions = facts.driver, facts.toolkit
        if all(versions) and versions != self._refuted_at:
            self._refuted = {}
        self._facts = facts
        self._set()

    @property
    def setter(self) -> Setter:
        """Who sets the limits of containers now, "" if nobody does."""
        if self.now is None or not self.now.memory or self._facts is None:
            return ""
        return levels.setter(self._facts, self._refuted)

    def refute(self, why: str) -> bool:
        """Note what a container has shown against who sets limits; returns whether that changed anything."""
        shown = self.setter
        if not shown or self._facts is None:
            return False
        self._refuted[shown], self._refuted_at = why, (self._facts.driver, self._facts.toolkit)
        self._set()
        return True

    def _set(self) -> None:
        before, found = self.now or PROMISED, levels.isolation(self._facts or Facts(), self._refuted)
        if found == before:
            return
        self.now = found
        log.info("isolation", level=str(found), why=found.why)
        fell = bool(before.memory) and not found.memory
        lacking = self.mode is Mode.DRIVER and not found.memory
        self._untold = Reason(LACKING, _sentence(found), found.why) if fell or lacking else None

    async def tell(self) -> None:
        """Post on the node what is less than it was, or than the operator wants; each change once."""
        told, self._untold = self._untold, None
        if told is not None:
            await self._tell(told.code, str(told), "Warning")


def _sentence(found: Isolation) -> str:
    return f"parts of this node's GPUs have {found}; pods that demand more do not start here"
