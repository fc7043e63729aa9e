"""Nodes that are drained: members leave them in an orderly way before the nodes are gone.

Surplus members go: the operator of an elastic job is asked to remove its workers, and members of other gangs are
evicted. A gang that restarts whenever it loses a member does so at once, not when the node is gone. Other pods stay
until the node's owner ends them, and are replaced like any lost member. No state is kept: it follows from the nodes as
they are. If a node stays after all, no more pods leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import msgspec

from extender.engine.gangs.reporter import ref
from extender.engine.planning.attempt import LOOK
from extender.engine.policies.context import PolicyContext
from extender.engine.state.node_state import NodeState
from extender.engine.state.scalers import Scalers
from extender.engine.types import refusals
from extender.engine.types.effects import Evict, Report
from extender.engine.types.sliced import Sliced
from extender.engine.types.subject import of_gang
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.members import Member, Stage
from gangfilter.table import Phase
from protos.contract.reason import Reason

LOOK_S, PER_LOOK = 1.0, 500
"""Seconds between looks at drained nodes, and one more for each so many gangs there."""
WEIGHED = 4
"""Cost of finding the surplus members, for each member."""
AGAIN_S, REFUSED_S = 5.0, 30.0
"""Seconds after which members that are still there are evicted again; the same after a budget forbade it."""
AT_ONCE = 32
"""Most members of one gang evicted at a time. If a budget changes, so many more may go than it allows."""


class Going(msgspec.Struct):
    """The members of a gang that must leave."""

    since: dict[str, float]
    """By name: when they were first asked to leave."""
    evicted: frozenset[str] = frozenset()
    again_at: float = 0.0
    """No member is evicted before."""


def on_leaving(members: Sequence[Member], nodes: Mapping[str, NodeState]) -> list[Member]:
    """The members that are on drained nodes."""
    return [member for member in members if (node := nodes.get(member.node)) is not None and node.leaving]


def restarting(gang: Gang, spared: Sequence[Member], nodes: Mapping[str, NodeState]) -> list[Member]:
    """The members on drained nodes, if the gang will lose one that is not surplus and then restarts as a whole."""
    bound = gang.at(Stage.BOUND) if gang.terms.on_member_lost == "restart" else []
    lost = on_leaving(bound, nodes)
    spare = {member.uid for member in spared}
    restarts = all(member.removable for member in bound) and any(member.uid not in spare for member in lost)
    return lost if restarts else []


class Leaving:
    """The drained nodes, and the members that leave them."""

    def __init__(self, context: PolicyContext, scalers: Scalers, spared: Callable[[Gang], list[Member]]) -> None:
        """`spared`: the surplus members of a gang, in order."""
        self._context, self._outbox, self._scalers, self._spared = context, context.outbox, scalers, spared
        self._ledger, self._roster, self._controller = context.ledger, context.gangs.roster, context.gangs.controller
        self._going: dict[GroupKey, Going] = {}
        self._work: Sliced[None] | None = None
        self._look_at = self._now = 0.0

    def asked(self, key: GroupKey) -> frozenset[str]:
        """The members (names) of a gang that were asked to leave drained nodes."""
        going = self._going.get(key)
        return frozenset(going.since) if going is not None else frozenset()

    def refused(self, uid: str, now: float) -> None:
        """A disruption budget forbids the eviction of this pod: its gang is left alone for a while."""
        known = self._roster.of(uid)
        going = self._going.get(known.gang.key) if known is not None else None
        if known is not None and going is not None and known.gang.members[uid].name in going.since:
            going.again_at = now + REFUSED_S

    def stop(self) -> None:
        """Another process leads now."""
        self._work = None
        self._going.clear()

    def tick(self, now: float) -> None:
        """Begin to look, if it is time."""
        if self._work is None and now >= self._look_at and (self._ledger.leaving or self._going):
            self._work = Sliced(self._look())

    def work(self, now: float) -> bool:
        """Do a slice of looking; return whether there is more to do."""
        self._now = now
        work, self._work = self._work, None  # unless it goes on
        if work is not None and not work.advance():
            self._work = work
        return self._work is not None

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
                    self._leave(known.gang)
                yield WEIGHED * len(known.gang.members) * LOOK
        self._look_at = self._now + LOOK_S + len(concerned) / PER_LOOK

    def _leave(self, gang: Gang) -> None:
        steady = gang.phase is Phase.RUNNING and not gang.preempted and not self._controller.is_aside(gang)
        spared = self._spared(gang) if steady else []
        restarts = restarting(gang, spared, self._ledger.nodes) if steady else []
        leaving = restarts or on_leaving(spared, self._ledger.nodes)
        if not leaving:
            self._going.pop(gang.key, None)
            return
        going = self._going.setdefault(gang.key, Going({}))
        asked_at = self._scalers.asked_at  # as far as the cluster shows it
        going.since = {m.name: going.since.get(m.name, asked_at(gang.key, [m.name], self._now)) for m in leaving}
        asks = self._scalers.serves(gang.key, "ScaleIn") and not restarts
        patience = self._context.settings.scale_in_timeout_s if asks else 0.0
        late = [member for member in leaving if self._now >= going.since[member.name] + patience]
        if len(late) < len(leaving):
            self._ask(gang, [member for member in leaving if member not in late])
        if late and self._now >= going.again_at:
            self._evict(gang, late, going, "restart" if restarts else "overdue" if patience else "spare")

    def _ask(self, gang: Gang, workers: Sequence[Member]) -> None:
        """Ask the job's operator to remove these workers."""
        for scale in self._scalers.shrink(gang.key, [worker.name for worker in workers], self._now):
            reports = (Report(ref(gang, worker), self._why(worker), warning=False) for worker in workers)
            self._outbox.put(scale, *reports)

    def _evict(self, gang: Gang, late: Sequence[Member], going: Going, kind: str) -> None:
        going.again_at = self._now + AGAIN_S
        if kind == "overdue" and not going.evicted:
            self._scalers.overdue()
        for member in late[:AT_ONCE]:
            self._context.counters["drain_evictions", kind] += member.name not in going.evicted
            self._outbox.put(Evict(ref(gang, member), self._why(member), insist=False))
        going.evicted |= {member.name for member in late[:AT_ONCE]}

    def _why(self, member: Member) -> Reason:
        return refusals.node_leaving(member.node, self._ledger.nodes[member.node].leaving)
