"""The nodes that have changed since a caller looked last."""

from __future__ import annotations

import msgspec

from extender.engine.types.events import NodeGone, NodeSeen, QueueSeen
from extender.server.visibility import changes
from extender.server.visibility.changes import Changes, Since
from extender.server.visibility.items import Sight
from protos.contract.queue import Queue
from tests.builders import a_node, a_pod, newer
from tests.unit.engine.story import Story

ALL, A = Sight(None), frozenset({"a"})


class Caller:
    """Looks again and again, with the tokens that it was given."""

    def __init__(self, story: Story, sight: Sight = ALL) -> None:
        self.story, self.sight, self.changes = story, sight, Changes()
        self.token, self.now = "", 0.0

    def look(self) -> Since:
        self.now += changes.FRESH_S
        for _ in self.changes.look(self.story.engine.nodes, self.story.engine.tenancy.queues.epoch, self.now):
            pass
        found = self.changes.since([self.token], self.sight)
        self.token = found.token
        return found


def a_caller(*names: str) -> Caller:
    return Caller(Story(*(a_node(name, 16) for name in names)))


def test_first_all_nodes_then_those_that_have_changed() -> None:
    caller = a_caller("a", "b")
    assert caller.look().changed is None
    assert caller.look().changed == frozenset()
    caller.story.run(a_pod("p", mem=4))
    assert caller.look().changed in (A, frozenset({"b"}))
    assert caller.look().changed == frozenset()


def test_a_change_is_told_to_each_caller_whoever_looks_first() -> None:
    caller = a_caller("a", "b")
    caller.look()
    before = caller.token
    caller.story.tell(NodeSeen(a_node("a", 24)))
    assert caller.look().changed == A
    assert caller.changes.since([before], ALL).changed == A


def test_a_look_serves_all_callers_for_a_second() -> None:
    caller = a_caller("a")
    caller.look()
    caller.story.tell(NodeSeen(a_node("a", 24)))
    caller.now -= changes.FRESH_S / 2
    assert caller.look().changed == frozenset()
    assert caller.look().changed == A


def test_a_node_that_is_gone_is_named_until_it_comes_back() -> None:
    caller = a_caller("a", "b")
    caller.look()
    before = caller.token
    caller.story.tell(NodeGone("a"))
    assert caller.look()[:2] == (frozenset(), ("a",))
    assert caller.look()[:2] == (frozenset(), ())
    caller.story.tell(NodeSeen(a_node("a", 16)))
    assert caller.look()[:2] == (A, ())
    assert caller.changes.since([before], ALL)[:2] == (A, ())


def test_a_node_without_gpus_of_ours_is_gone() -> None:
    caller = a_caller("a")
    caller.look()
    caller.story.tell(NodeSeen(a_node("a")))
    assert caller.look()[:2] == (frozenset(), ("a",))


def test_a_token_of_another_replica_of_another_sight_or_garbage_gives_all() -> None:
    caller, other = a_caller("a"), a_caller("a")
    caller.look()
    other.look()
    life, sees, _ = caller.token.split(".")
    for token in (
        other.token,
        f"{life}.{sees}.9",
        f"{life}.{sees}.-1",
        f"{life}.{sees}.\u00b2",
        f"{life}.{sees}",
        "",
        "x",
    ):
        assert caller.changes.since([token], ALL).changed is None
    assert caller.changes.since([caller.token], Sight(("team-a",))).changed is None
    assert caller.changes.since([other.token, caller.token], ALL).changed == frozenset()


def test_only_so_many_gone_nodes_are_remembered() -> None:
    caller = a_caller("kept", *(f"n{number}" for number in range(changes.MOST_GONE + 1)))
    caller.look()
    before = caller.token
    for number in range(changes.MOST_GONE):
        caller.story.tell(NodeGone(f"n{number}"))
    assert len(caller.look().gone) == changes.MOST_GONE
    assert caller.changes.since([before], ALL).changed == frozenset()
    caller.story.tell(NodeGone(f"n{changes.MOST_GONE}"))
    assert caller.look().gone == (f"n{changes.MOST_GONE}",)
    assert caller.changes.since([before], ALL).changed is None


def test_what_an_operator_wrote_wrongly_is_a_change() -> None:
    caller = a_caller("a")
    caller.look()
    node = a_node("a", 16)
    version = caller.story.engine.nodes["a"].version
    wrong = {**node.metadata.annotations, "gangshare.io/cordoned-gpu": "0"}
    caller.story.tell(NodeSeen(msgspec.structs.replace(node, metadata=newer(node.metadata, annotations=wrong))))
    assert caller.story.engine.nodes["a"].version == version
    assert caller.look().changed == A


def test_another_queue_is_a_change_of_all_nodes_since_pods_may_be_in_it() -> None:
    caller = a_caller("a", "b")
    caller.look()
    caller.story.tell(QueueSeen(Queue(name="new")))
    assert caller.look().changed == frozenset({"a", "b"})
    assert caller.look().changed == frozenset()
