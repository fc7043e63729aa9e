"""What was promised of gangs, held against the truth of a naive world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from extender.engine.cycle.engine import Engine
from gangfilter.gang import BEFORE
from gangfilter.members import Stage
from gangfilter.table import Phase
from protos.contract import allocation, names
from tests.property.gang_events import GangEvents
from tests.property.gang_truth import CPUS, NODES, SLACK_S, SLOT_S


def check(world: GangEvents) -> None:
    """All that must hold at any time."""
    for engine in world.engines:
        _rooms_are_right(world, engine)
        _tallies_are_right(engine)
        _totals_are_right(world, engine)
    _nothing_is_given_twice(world)
    _only_the_living_hold_anything(world)
    _nobody_holds_while_waiting(world)
    _no_half_gang_is_old(world)
    waiting = {m.name for k in world.engine.gangs.roster.known.values() for m in k.gang.at(Stage.IN_BIND)}
    assert world.held == waiting, "a held bind was forgotten"


def _nothing_is_given_twice(world: GangEvents) -> None:
    taken: dict[str, list[allocation.Share]] = {}
    for given in _given(world):
        for parts in given.containers.values():
            for share in parts:
                taken.setdefault(share.uuid, []).append(share)
    for share in world.rooms.shares():
        taken.setdefault(share.uuid, []).append(share)
    for uuid, shares in taken.items():
        node, index = uuid.split("-")[1:]
        assert sum(s.mem for s in shares) <= NODES[node][int(index)], f"{uuid} holds {shares}"
        assert sum(s.slices for s in shares) <= 100
        assert len(shares) == 1 or not any(s.whole for s in shares)


def _given(world: GangEvents) -> Iterable[allocation.Allocation]:
    for name, pod in world.pods.items():
        text = pod.metadata.annotations.get(names.ALLOCATION)
        if pod.spec.node_name and pod.status.phase == "Pending":
            found = allocation.decode(text)
            if found is not None:
                yield found
        elif name in world.flying and (placed := world.flying[name].allocation) is not None:
            yield placed


def _totals_are_right(world: GangEvents, engine: Engine) -> None:
    for node in engine.nodes.values():
        here = [pod for pod in (*engine.pods.values(), *engine.ledger.keepers.values()) if pod.node == node.name]
        counted: Counter[str] = Counter()
        for pod in here:
            counted.update(dict(pod.requests))
        assert {k: v for k, v in node.used.items() if v} == {k: v for k, v in counted.items() if v}
        placed = [p for p in world.pods.values() if p.spec.node_name == node.name and p.status.phase == "Pending"]
        assert len(placed) <= CPUS


def _rooms_are_right(world: GangEvents, engine: Engine) -> None:
    leasts = {gang: sort.least for gang, sort in world.sorts.items()}
    world.rooms.check(engine, leasts, world.now)
    if engine is world.engine:
        world.rooms.check_kept(engine, leasts, world.now, leads=world.leads)


def _only_the_living_hold_anything(world: GangEvents) -> None:
    live = {pod.metadata.uid for pod in world.pods.values()}
    assert {uid for uid, pod in world.engine.pods.items() if pod.node} <= live
    assert set(world.engine.gangs.assignments.of_member) <= live
    for name in world.pods:
        if world.alive_at_node(name):
            assert world.engine.pods[world.pods[name].metadata.uid].state == "bound"


def _nobody_holds_while_waiting(world: GangEvents) -> None:
    patience = world.settings.patience
    for known in world.engine.gangs.roster.known.values():
        gang = known.gang
        held = [m for m in gang.members.values() if _is_held(world, m.uid)]
        if gang.phase in BEFORE or gang.phase in (Phase.UNDOING, Phase.COMPLETED):
            assert not held, f"{gang.key} is {gang.phase} and holds {held}"
        if gang.phase is Phase.STARTING:
            assert {m.uid for m in held} == {m.uid for m in gang.holding()}
            assert world.now <= gang.since + patience.stuck_s + patience.hold_s + 2
        if gang.phase is Phase.RUNNING:
            assert not [m for m in held if m.uid in world.engine.gangs.assignments.of_member]
        if gang.phase is Phase.DEGRADED:
            assignments = [
                assignment for m in held if (assignment := world.engine.gangs.assignments.of_member.get(m.uid))
            ]
            assert all(world.now - 1.5 <= assignment.until <= world.now + SLOT_S for assignment in assignments)
        for member in gang.holding():
            assignment = world.engine.gangs.assignments.of_member[member.uid]
            assert member in held
            assert (member.node, world.engine.pods[member.uid].node) == (assignment.node, assignment.node)
            assert assignment.node in world.nodes, f"{member.name} has a place on {assignment.node}, which is gone"
            books = world.engine.nodes[assignment.node].books
            assert books is not None
            assert dict(books.entries[member.uid].charges if assignment.charges else {}) == dict(assignment.charges)
        if gang.phase is Phase.BINDING:
            assert world.now <= gang.since + patience.gang_bind_timeout_s + 2
        if not world.leads:
            assert not [m for m in held if m.uid in world.engine.gangs.assignments.of_member]


def _is_held(world: GangEvents, uid: str) -> bool:
    pod = world.engine.pods.get(uid)
    return pod is not None and pod.state == "held"


def _no_half_gang_is_old(world: GangEvents) -> None:
    for gang, sort in world.sorts.items():
        if sort.half_since is None or not sort.owner or not world.leads:
            continue
        if world.now - sort.half_since > world.settings.patience.gang_bind_timeout_s + SLACK_S:
            bound = {world.pods[n].metadata.uid for n in world.bound_in(gang)} - world.asked_to_go
            left = [uid for uid in bound if world.now - world.landed_at[uid] > SLACK_S]
            assert not left, f"{gang} is half since {world.now - sort.half_since} s and {left} were left alone"


def _tallies_are_right(engine: Engine) -> None:
    for known in engine.gangs.roster.known.values():
        gang = known.gang
        recount = Counter((m.stage, m.role, m.required) for m in gang.members.values())
        recount += Counter({(Stage.SUCCEEDED, *kind): count for kind, count in gang._past.items()})
        assert gang._tally == recount
