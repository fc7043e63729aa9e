"""Pages are made in pieces: however much there is to tell, no piece of it grows."""

from __future__ import annotations

import msgspec
import pytest

from extender.engine.types.events import GroupSeen, NodeSeen
from extender.server import desk, explain
from extender.server.desk import Pieces, Refusal
from gangfilter.group import GroupKey
from tests.builders import a_node
from tests.unit.engine.gang_story import GangStory, a_declaration, members
from tests.unit.engine.test_queues import OWN

MOST = 1000
"""Bytes of a piece."""


def read(page: Pieces) -> tuple[list[bytes], dict[str, list[object]]]:
    """The pieces, and what they are together."""
    pieces = list(page)
    return pieces, msgspec.json.decode(b"".join(pieces))


def starting(count: int) -> GangStory:
    """A gang of as many, each with a node to itself."""
    story = GangStory(*(a_node(f"n{number}", 16) for number in range(count)))
    story.create(*members(count, least=count, mem=16))
    return story


def test_a_gang_is_told_member_by_member() -> None:
    story = starting(100)
    pieces, told = read(explain.group(story.engine, GroupKey("default", "g"), story.now))
    assert len(told["members"]) == 100
    assert max(map(len, pieces)) < MOST


def test_gangs_whose_names_are_alike_are_looked_for_in_slices() -> None:
    story = GangStory(a_node("n1", 16))
    for number in range(10 * desk.SLICE):
        story.tell(GroupSeen(OWN, GroupKey("default", f"train-{number:04}"), a_declaration()))
    page, pauses = explain.group(story.engine, GroupKey("default", "train"), story.now), 0
    with pytest.raises(Refusal, match=r"train-0000, .*train-0004, and 1995 more"):  # noqa: PT012  # it comes at the end
        for _ in page:
            pauses += 1
    assert pauses == 10


def test_moves_for_a_gang_are_told_member_by_member() -> None:
    story = GangStory(a_node("n1", 16))
    story.create(*members(100, least=100, mem=16))
    story.later()
    story.tell(*(NodeSeen(a_node(f"new-{number}", 16)) for number in range(100)))
    pieces, told = read(explain.moves(story.engine, "default", "g", ""))
    assert len(told["rooms"]) == 100
    assert max(map(len, pieces)) < MOST
