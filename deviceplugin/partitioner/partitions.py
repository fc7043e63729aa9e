"""The plugin's side of the partitioner: tells it what pods hold, and knows what can be made and what was made.

A place that the driver refused is not offered for a while, so that the extender chooses another one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from deviceplugin import helper_lines, helper_socket
from deviceplugin.helper_socket import HelperError
from deviceplugin.identify import RefusedError
from deviceplugin.machine import Machine, MemoryLimit, Source
from deviceplugin.metrics import Metrics
from deviceplugin.partitioner import protocol
from deviceplugin.partitioner.protocol import Answer, Device, Held, Kind, PartitionError
from protos.contract import mig
from protos.contract.reason import Reason

log = structlog.get_logger()

COMPONENT = "mig-dynamic"
LOOK_S = 2.0
"""Seconds between two requests while nothing happens."""
ANSWER_S = 7.0
MAKE_S = 7.0
"""How long an Allocate tries: an instance that has just been freed may still be in use."""
AGAIN_S = 0.3
SILENT_S = 30.0
"""After so long without an answer nothing is offered."""
WITHDRAWN_S = 60.0
NOT_MADE, SILENT = "MigNotMade", "PartitionerSilent"
Tell = Callable[[str, str], Awaitable[None]]
"""Posts a warning about the node: its reason and message."""


class Partitions:
    """What the partitioner of this node has said last."""

    def __init__(
        self,
        socket: Path,
        held: Callable[[], Held | None],
        metrics: Metrics,
        tell: Tell,
        in_use: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """`held`: what pods of this node hold, None before that is known; `in_use`: names of what they were given."""
        self._socket, self._held, self._metrics, self._tell, self._in_use = socket, held, metrics, tell, in_use
        self._last: Answer | None = None
        self._others: frozenset[str] = frozenset()
        """The instances of the operator, also those of GPUs that do not answer now."""
        self._heard_at = -SILENT_S
        self._silent = ""
        self._withdrawn: dict[str, float] = {}
        """Until when a place is not offered."""
        self._turn = asyncio.Lock()

    @property
    def made(self) -> Mapping[str, Device]:
        """The instances that exist, by place."""
        return self._last.made if self._last is not None else {}

    async def run(self) -> None:
        """Follow what pods hold for ever."""
        while True:
            try:
                await self.look()
            except PartitionError as error:
                await self._complain(str(error))
            await asyncio.sleep(LOOK_S)

    async def look(self) -> Answer | None:
        """Have the instances that pods hold, and no others; None before it is known what they hold.

        Raises PartitionError.
        """
        async with self._turn:
            held = self._held()
            if held is None:
                return None
            try:
                text = await helper_socket.asked(self._socket, helper_lines.line(held), ANSWER_S, COMPONENT)
            except HelperError as error:
                raise PartitionError(str(error)) from error
            answer = protocol.answer(text)
            if answer.why:
                raise PartitionError(answer.why)
            self.take(answer)
            self._withdrawn = {name: until for name, until in self._withdrawn.items() if until > time.monotonic()}
            self._metrics.count_made(answer.made)
            return answer

    def take(self, answer: Answer) -> None:
        """Note what the partitioner has said."""
        self._last, self._heard_at, self._silent = answer, time.monotonic(), ""
        self._others = frozenset(answer.others) | (self._others if answer.unread else frozenset())

    async def have(self, places: Sequence[str]) -> Mapping[str, Device]:
        """The instances at these places, which a pod holds now; raises RefusedError."""
        until, why = time.monotonic() + MAKE_S, "the pods of this node are not known yet"
        while True:
            try:
                answer = await self.look()
            except PartitionError as error:
                why = str(error)
            else:
                made = answer.made if answer else {}
                if all(name in made for name in places):
                    return {name: made[name] for name in places}
                refused = answer.refused if answer else {}
                why = next((refused[name] for name in places if name in refused), why)
            if time.monotonic() >= until:
                break
            await asyncio.sleep(AGAIN_S)
        for name in places:
            self._withdrawn[name] = time.monotonic() + WITHDRAWN_S
        raise not_made(why)

    def true(self, name: str) -> str:
        """The UUID of the instance at a place; every other name is one."""
        device = self.made.get(name)
        return device.uuid if device is not None else name

    def marked(self, machine: Machine) -> Machine:
        """The machine with what can be made. On GPUs that are given over it has instances of the operator only.

        Before the first answer, a GPU is given over if a pod was given an instance on demand of it.
        """
        cut: Mapping[str, Sequence[Kind]] = self._last.gpus if self._last is not None else {}
        if self._last is not None:
            hidden = {*cut, *self._last.unread}
        else:
            hidden = {place.gpu for name in self._in_use() if (place := mig.place(name)) is not None}
        gpus = tuple(gpu for gpu in machine.gpus if gpu.parent not in hidden or gpu.uuid in self._others)
        heard = time.monotonic() - self._heard_at < SILENT_S
        kinds = {uuid: left for uuid, of in cut.items() if (left := self._left(uuid, of))} if heard else {}
        return msgspec.structs.replace(machine, gpus=gpus, kinds=kinds)

    def _left(self, gpu: str, kinds: Iterable[Kind]) -> tuple[Kind, ...]:
        """The kinds without the places that were refused lately."""
        found = []
        for kind in kinds:
            names = {start: mig.Place(gpu, kind.profile, start, kind.size).name for start in kind.starts}
            starts = tuple(start for start, name in names.items() if self._withdrawn.get(name, 0.0) <= time.monotonic())
            if starts:
                found.append(msgspec.structs.replace(kind, starts=starts))
        return tuple(found)

    async def _complain(self, why: str) -> None:
        if why != self._silent:
            self._silent = why
            log.warning("partitioner_silent", why=why)
            await self._tell(SILENT, f"no MIG instance can be made on this node: {why}")


class PartitionedSource:
    """A source whose GPUs are cut on demand."""

    def __init__(self, source: Source, marked: Callable[[Machine], Machine]) -> None:
        """`marked` adds what can be made."""
        self.source, self._marked = source, marked
        self.period, self.poll, self.close = source.period, source.poll, source.close

    @property
    def trouble(self) -> Reason | None:
        """That of the source."""
        return self.source.trouble

    def read(self) -> Machine:
        """The machine as it is now; raises SourceError."""
        return self._marked(self.source.read())

    def memory_limit(self, uuid: str, cgroup: str) -> MemoryLimit | None:
        """The limit of a control group on a GPU."""
        return self.source.memory_limit(uuid, cgroup)


def not_made(why: str) -> RefusedError:
    """The refusal of a pod whose instance cannot be made."""
    return RefusedError(Reason(NOT_MADE, "the MIG instance cannot be made", why))
