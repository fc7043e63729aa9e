"""What may be evicted as one: a surplus member of a gang, a whole gang but never half of it, or a single pod."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain
from operator import attrgetter
from typing import TypeVar

import msgspec

from extender.engine.planning.attempt import batched
from extender.engine.policies.context import PolicyContext
from extender.engine.policies.elastic.elastic import Elastic
from extender.engine.state.pod_state import PodState
from extender.engine.types.effects import PodRef
from extender.engine.types.subject import of_gang
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.members import Stage
from gangfilter.table import Phase
from protos.contract.queue import GPU, GPUS

WHOLE = (Phase.RUNNING, Phase.DEGRADED)
"""Phases in which a gang may be evicted: in the others it is being started or undone."""
PART, BUILT = 32, 4
"""Pods whose units are built in one piece; the cost of building or sorting one."""
MayTake = Callable[["Unit"], bool]
"""Whether the room of a unit may be taken."""


class Victim(msgspec.Struct, frozen=True):
    """A pod that would be evicted."""

    ref: PodRef
    node: str
    grace_s: float
    lost: float
    """GPU-seconds of work that would be lost."""
    labels: Mapping[str, str]
    guarded: bool
    """A disruption budget may guard it, since it runs."""

    @property
    def uid(self) -> str:
        return self.ref.uid


class Unit(msgspec.Struct, frozen=True):
    """Pods that are evicted together or not at all."""

    who: str
    """`default/web-1`, `gang default/train`, `default/train-7, which gang default/train can spare`."""
    victims: tuple[Victim, ...]
    gang: GroupKey | None
    priority: int
    """Of its gang, if it has one; else the highest of its pods."""
    since: float
    """When the last of its pods got its node."""
    lost: float
    """GPU-seconds of work that would be lost."""
    gpus: float
    idle: bool = False
    """Its pods with GPUs have used none for so long that it gives way first."""
    spare: bool = False
    """A surplus member: its gang goes on without it."""
    yields: bool = False
    """A surplus member of an elastic gang: it goes before other pods, at equal priority too."""
    rank: int = 0
    """How many surplus members of its gang go before it. It counts as no cheaper than they do."""
    over_quota: str = ""
    """What its queue has and is due, if it is reclaimed for another queue."""

    @property
    def by(self) -> str:
        """Why it may be taken: `priority` in its queue, or the `share` of another queue."""
        return "share" if self.over_quota else "priority"

    @property
    def kind(self) -> str:
        """`spare`, `gang` or `pod`."""
        return "spare" if self.spare else "gang" if self.gang is not None else "pod"

    @property
    def cost(self) -> tuple[bool, int, bool, float, bool, int, float, float, str]:
        """Cheapest first: who yields, lower priority, idle, less work lost, surplus, fewer GPUs, younger; by name."""
        worst = self.rank, self.gpus, -self.since, self.who
        return not self.yields, self.priority, not self.idle, self.lost, not self.spare, *worst


U = TypeVar("U", bound=Unit | None)


def pieces(units: Iterable[U]) -> Iterator[list[U]]:
    """The units in pieces of `PART` pods, or of one unit that has more."""
    piece: list[U] = []
    pods = 0
    for unit in units:
        piece.append(unit)
        pods += len(unit.victims) if unit is not None else 1
        if pods >= PART:
            yield piece
            piece, pods = [], 0
    if piece:
        yield piece


def price(units: Sequence[Unit | None]) -> int:
    """The cost of looking at these units."""
    return BUILT * sum(len(unit.victims) if unit is not None else 1 for unit in units)


class Units:
    """Lists the units in the cluster."""

    def __init__(self, context: PolicyContext, elastic: Elastic) -> None:
        self._context, self._elastic = context, elastic
        self._ledger, self._gangs = context.ledger, context.gangs
        self._idle_s = context.settings.idle_first_s

    def found(self, now: float, may_take: MayTake, min_runtime_s: float = 0.0) -> Generator[int, None, list[Unit]]:
        """The units that may be taken and have run for so long, cheapest first."""
        parts: list[list[Unit]] = []
        for piece in pieces(chain(self._singles(now), self._of_gangs(now))):
            may = (unit for unit in piece if unit is not None and unit.since <= now - min_runtime_s and may_take(unit))
            parts.append(sorted(may, key=attrgetter("cost")))
            yield price(piece)
        units: list[Unit] = []
        for batch in batched(merge(*parts, key=attrgetter("cost")), PART):
            units += batch
            yield PART * BUILT
        return units

    def _singles(self, now: float) -> Iterator[Unit | None]:
        def single(pod: PodState) -> Unit | None:
            if pod.state != "bound" or not (pod.info.lingers or self._gangs.roster.of(pod.ref.uid) is None):
                return None
            return self._unit(str(pod.ref), [pod], now) if self._may_go(pod) else None

        pods = list(self._ledger.pods.values())
        return self._context.quarantine.tried(pods, lambda pod: pod.subject, "units", single)

    def _of_gangs(self, now: float) -> Iterator[Unit | None]:
        """The units of gangs; None for a gang that has none."""
        gangs = [known.gang for known in self._gangs.roster.known.values()]
        for units in self._context.quarantine.tried(
            gangs, lambda gang: of_gang(gang.key), "units", lambda gang: list(self._of_gang(gang, now))
        ):
            yield from units or (None,)

    def _of_gang(self, gang: Gang, now: float) -> Iterator[Unit]:
        going = gang.preempted or gang.count(Stage.EVICTING, Stage.POSTED)
        if going or gang.phase not in WHOLE or self._gangs.controller.is_aside(gang):
            return
        pods = [self._ledger.pods[member.uid] for member in gang.at(Stage.BOUND)]
        if not pods or not all(map(self._may_go, pods)):
            return
        lost, idle = 0.0, True
        yields = self._elastic.yields(gang)
        for rank, member in enumerate(self._elastic.spared(gang)):
            pod = self._ledger.pods[member.uid]
            who = f"{pod.ref}, which gang {gang.key} can spare"
            spare = self._unit(who, [pod], now, gang=gang)
            lost, idle = max(lost, spare.lost), idle and spare.idle
            yield msgspec.structs.replace(spare, spare=True, yields=yields, rank=rank, lost=lost, idle=idle)
        yield self._unit(f"gang {gang.key}", pods, now, gang=gang)

    def _may_go(self, pod: PodState) -> bool:
        """Whether the pod is ours, would stay otherwise, and its GPUs are known."""
        if not pod.info.stays or pod.problem:
            return False
        books = self._ledger.nodes[pod.node].books
        entry = books.entries.get(pod.ref.uid) if books is not None else None
        return entry is None or entry.placed

    def _unit(self, who: str, pods: Sequence[PodState], now: float, *, gang: Gang | None = None) -> Unit:
        takes = self._context.tenancy.queues.takes
        gpus = [dict(takes(pod.ref.uid)).get(GPUS, 0) / GPU for pod in pods]
        victims = tuple(
            Victim(pod.ref, pod.node, info.grace_s, held * max(0.0, now - info.saved), info.labels, info.running)
            for pod, info, held in zip(pods, [pod.info for pod in pods], gpus, strict=True)
        )
        highest = max(pod.priority for pod in pods)
        idle_s = min((pod.info.idle_s(now) for pod, held in zip(pods, gpus, strict=True) if held), default=0.0)
        return Unit(
            who=who,
            victims=victims,
            gang=gang.key if gang is not None else None,
            priority=highest if gang is None else self._context.priorities.of(gang, highest),
            since=max(pod.info.since for pod in pods),
            lost=sum(victim.lost for victim in victims),
            gpus=sum(gpus),
            idle=0 < self._idle_s <= idle_s,
        )
