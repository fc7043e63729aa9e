"""Nodes that are about to go: who can leave them in an orderly way does, before they are gone.

Members that their gang can spare go: the operator of an elastic job is asked to let its workers go, and who belongs to
another gang is evicted. A gang that starts anew whenever it loses a member does so at once, rather than when the node
is gone. Everybody else stays: whoever takes the node away ends them, and they are replaced like any that are lost.
Nothing is kept of this: it follows from the nodes as they are. A node that stays after all is left by nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

import msgspec

from extender.engine.gangs.reporter import ref
from extender.engine.planning.attempt import LOOK
from extender.engine.policies.context import PolicyContext
from extender.engine.state.node_state import NodeState
from extender.engine.state.scalers import Scalers
from extender.engine.types import refusals
from extender.engine.types.effects import Effect, Evict, Report
from extender.engine.types.sliced import Sliced
from extender.engine.types.subject import of_gang
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.members import Member, Stage
from gangfilter.table import Phase
from protos.contract.reason import Reason

LOOK_S, PER_LOOK = 1.0, 500
"""Seconds between looks at the nodes that are about to go, and one more for each so many gangs there."""
WEIGHED = 4
"""What it costs to see which members can be spared, in `attempt.LOOK`s for each."""
AGAIN_S, REFUSED_S = 5.0, 30.0
"""Seconds after which those of a gang that are still there are evicted once more; after a budget forbade it."""
AT_ONCE = 32
"""Of one gang so many are evicted at a time: so many more may go than a budget allows, should it change."""


class Going(msgspec.Struct):
    """The members of a gang that are to leave."""

    since: dict[str, float]
    """By name: when they were first asked to."""
    evicted: frozenset[str] = frozenset()
    again_at: float = 0.0
    """None of them is evicted before."""


def on_leaving(members: Sequence[Member], nodes: Mapping[str, NodeState]) -> list[Member]:
    """Those of these members that are on nodes that are about to go."""
    return [member for member in members if (node := nodes.get(member.node)) is not None and node.leaving]


def anew(gang: Gang, spared: Sequence[Member], nodes: Mapping[str, NodeState]) -> list[Member]:
    """The members on nodes that are about to go, if one that cannot be spared is among them and all then start anew."""
    bound = gang.at(Stage.BOUND) if gang.terms.on_member_lost == "restart" else []
    lost = on_leaving(bound, nodes)
    spare = {member.uid for member in spared}
    restarts = all(member.removable for member in bound) and any(member.uid not in spare for member in lost)
    return lost if restarts else []


class Leaving:
    """All such nodes, and who leaves them."""

    def __init__(self, context: PolicyContext, scalers: Scalers, spared: Callable[[Gang], list[Member]]) -> None:
        """`spared`: members that a gang can spare, in order."""
        self._context, self._scalers, self._spared = context, scalers, spared
        self._ledger, self._roster, self._gang_controller = (
            context.ledger,
            context.gangs.roster,
            context.gangs.controller,
        )
        self._going: dict[GroupKey, Going] = {}
        self._work: Sliced[None] | None = None
        self._effects: list[Effect] = []
        self._look_at = self._now = 0.0

    def asked(self, key: GroupKey) -> frozenset[str]:
        """The members (names) of a gang that were asked to leave such nodes."""
        going = self._going.get(key)
        return frozenset(going.since) if going is not None else frozenset()

    def refused(self, uid: str, now: float) -> None:
        """A disruption budget forbids the eviction of this pod: nobody else of its gang is evicted for a while."""
        known = self._roster.of(uid)
        going = self._going.get(known.gang.key) if known is not None else None
        if known is not None and going is not None and known.gang.members[uid].name in going.since:
            going.again_at = now + REFUSED_S

    def stop(self) -> None:
        """Another process decides now."""
        self._work = None
        self._effects.clear()
        self._going.clear()

    def tick(self, now: float) -> None:
        """Begin to look, if it is time."""
        if self._work is None and now >= self._look_at and (self._ledger.leaving or self._going):
            self._work = Sliced(self._look())

    def work(self, now: float) -> tuple[bool, Sequence[Effect]]:
        """Do a slice of looking; returns whether there is more to do, and what is to be done."""
        self._now = now
        work, self._work = self._work, None  # unless it goes on
        if work is not None and not work.advance():
            self._work = work
        effects, self._effects = self._effects, []
        return self._work is not None, effects

    def _look(self) -> Generator[int, None, None]:
        concerned: dict[GroupKey, None] = {}
        for name in list(self._ledger.leaving):
            uids = self._ledger.on_node.get(name, ())
            concerned |= {known.gang.key: None for uid in uids if (known := self._roster.of(uid)) is not None}
            yield (1 + len(uids)) * LOOK
        for key in [key for key in self._going if key not in concerned]:
            del self._going[key]
        for key in concerned:
            known = self._roster.known.get(key)
            if known is not None:
                with self._context.quarantine.over(of_gang(key), "leaving"):
                    self._effects += self._leave(known.gang)
                yield WEIGHED * len(known.gang.members) * LOOK
        self._look_at = self._now + LOOK_S + len(concerned) / PER_LOOK

    def _leave(self, gang: Gang) -> Iterator[Effect]:
        """Have those go that leave now."""
        steady = gang.phase is Phase.RUNNING and not gang.preempted and not self._gang_controller.is_aside(gang)
        spared = self._spared(gang) if steady else []
        restarting = anew(gang, spared, self._ledger.nodes) if steady else []
        leaving = restarting or on_leaving(spared, self._ledger.nodes)
        if not leaving:
            self._going.pop(gang.key, None)
            return
        going = self._going.setdefault(gang.key, Going({}))
        asked_at = self._scalers.asked_at  # as far as it can be told from the cluster
        going.since = {m.name: going.since.get(m.name, asked_at(gang.key, [m.name], self._now)) for m in leaving}
        asks = self._scalers.serves(gang.key, "ScaleIn") and not restarting
        patience = self._context.settings.scale_in_timeout_s if asks else 0.0
        late = [member for member in leaving if self._now >= going.since[member.name] + patience]
        if len(late) < len(leaving):
            yield from self._ask(gang, [member for member in leaving if member not in late])
        if late and self._now >= going.again_at:
            yield from self._evict(gang, late, going, "restart" if restarting else "overdue" if patience else "spare")

    def _ask(self, gang: Gang, workers: Sequence[Member]) -> Iterator[Effect]:
        """Have a job's operator take these workers off it."""
        for scale in self._scalers.shrink(gang.key, [worker.name for worker in workers], self._now):
            yield scale
            yield from (Report(ref(gang, worker), self._why(worker), warning=False) for worker in workers)

    def _evict(self, gang: Gang, late: Sequence[Member], going: Going, kind: str) -> Iterator[Effect]:
        going.again_at = self._now + AGAIN_S
        if kind == "overdue" and not going.evicted:
            self._scalers.overdue()
        for member in late[:AT_ONCE]:
            self._context.counters["drain_evictions", kind] += member.name not in going.evicted
            yield Evict(ref(gang, member), self._why(member), insist=False)
        going.evicted |= {member.name for member in late[:AT_ONCE]}

    def _why(self, member: Member) -> Reason:
        return refusals.node_leaving(member.node, self._ledger.nodes[member.node].leaving)
