"""Questions about pods that do not exist, and everything of an engine that they must leave as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.policies.whatif.question import Answer, Outcome, Question
from extender.engine.state.node_state import NodeState
from protos.contract.books import NodeBooks
from protos.contract.objects import Pod
from tests.unit.engine.gang_story import GangStory


def question(*pods: Pod, groups: Sequence[Any] = (), nodes: Iterable[tuple[NodeState, int]] = ()) -> Question:
    """About these pods, with UIDs of their own."""
    own = [
        msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=f"whatif/{number}"))
        for number, pod in enumerate(pods)
    ]
    return Question(own, groups, tuple(nodes))


def answer(story: GangStory, *pods: Pod, **fields: Any) -> Answer:
    """The answer; the engine is as it was before."""
    before = kept(story.engine)
    made = story.engine.what_if(question(*pods, **fields), story.now)
    while not made.advance():
        pass
    assert kept(story.engine) == before
    assert story.engine.check() == []
    assert made.outcome is not None
    return made.outcome


def outcome(story: GangStory, *pods: Pod, **fields: Any) -> Outcome:
    """The only outcome."""
    (found,) = answer(story, *pods, **fields).outcomes
    return found


def places(found: Outcome) -> dict[str, str]:
    """By pod: NODE:INDEX,…"""
    return {
        found.workload.pods[uid].ref.name: f"{assignment.node}:{_indexes(assignment.shares)}"
        for uid, assignment in found.assignments.items()
    }


def _indexes(shares: Any) -> str:
    return ",".join(map(str, sorted({share.index for own in shares.values() for share in own})))


def victims(found: Outcome) -> list[str]:
    return sorted(victim.ref.name for unit in found.victims for victim in unit.victims)


def kept(engine: Engine) -> bytes:
    """All that the engine keeps of nodes, pods, gangs, queues, reservations and its own work, as text."""
    queues, parts = engine.tenancy.queues, engine._components
    nodes = {
        name: (node.version, sorted(node.used.items()), _books(node.books), node.labels)
        for name, node in engine.nodes.items()
    }
    state = {
        "nodes": nodes,
        "pods": {uid: repr(msgspec.structs.astuple(pod)) for uid, pod in engine.pods.items()},
        "on nodes": engine.ledger.on_node,
        "freed": engine.ledger.freed,
        "keepers": sorted(engine.ledger.keepers),
        "counters": sorted((f"{key}", count) for key, count in engine.counters.items()),
        "gangs": {str(key): _gang(known) for key, known in engine.gangs.roster.known.items()},
        "queues": {
            name: [repr(getattr(node, field)) for field in ("allocated", "requested", "due", "waiting", "running")]
            for name, node in queues.queue_nodes.items()
        },
        "counted": {uid: repr(found[1:]) for uid, found in queues.pods.items()},
        "local queues": sorted(queues._local_queues),
        "namespaces": sorted(queues._namespaces),
        "generation": queues.capacity_generation,
        "claims": repr(engine.reservations.claims(())),
        "outbox": repr(parts.outbox._effects),
        "shapes": [repr(shape) for shape in parts.indexes._shapes],
        "line": repr(parts.gangs.planner.turns),
        "priorities": sorted(parts.running_pods.priorities),
        "classes": sorted(parts.classes._named),
    }
    return msgspec.json.encode(state)


def _books(books: NodeBooks | None) -> Any:
    if books is None:
        return None
    entries = {uid: (repr(entry.ask), repr(entry.charges), entry.placed) for uid, entry in books.entries.items()}
    return entries, [(uuid, b.mem_used, b.slices_used, b.wholes, b.sharers) for uuid, b in books.gpus.items()]


def _gang(known: Any) -> Any:
    gang = known.gang
    stages = {uid: repr(member.stage) for uid, member in gang.members.items()}
    return str(gang.phase), gang.epoch, repr(gang.terms), stages, repr(known.reason), repr(known.planned)
