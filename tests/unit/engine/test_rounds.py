"""What passing time costs where gangs are many: only those are looked at that time can move, a few at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from unittest.mock import patch

import pytest

from extender.engine.gangs.controller import GangController
from extender.engine.state.quarantine import Quarantine
from extender.engine.state.roster import GangInfo
from extender.engine.types.effects import Report
from extender.engine.types.events import GroupSeen, Leading, PodGone, Tick
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import VOLCANO, GangStory, a_declaration, a_member, members, two_nodes

MANY = 220


@pytest.fixture
def looks() -> Iterator[list[str]]:
    """The names of gangs looked at as time passes, once for each look."""
    found: list[str] = []
    tick = GangController.tick

    def counted(self: GangController, known: GangInfo, now: float) -> None:
        found.append(known.gang.key.name)
        tick(self, known, now)

    with patch.object(GangController, "tick", counted):
        yield found


def crowd(*, least: int = 1, **fields: str) -> GangStory:
    """Many gangs of one member on a cluster with room for 32."""
    world = two_nodes()
    world.create(*(a_member(f"g{i:03}-0", gang=f"g{i:03}", least=least, mem=8, **fields) for i in range(MANY)))
    return world


def test_gangs_that_are_done_are_not_looked_at(looks: list[str]) -> None:
    world = GangStory(*(a_node(f"n{i}", *[16] * 8) for i in range(20)))
    names = [f"g{i:03}-0" for i in range(MANY)]
    for name in names:
        world.start(a_member(name, gang=name[:4], least=1, mem=8))
    for name in names:
        world.change(name, phase="Succeeded")
    assert {world.phase(name[:4]) for name in names} == {Phase.COMPLETED}
    world.later(5)
    looks.clear()
    world.later(60)
    assert looks == []


def test_gangs_whose_pods_are_to_come_are_looked_at_until_that_was_told(looks: list[str]) -> None:
    world = crowd(least=2)
    world.later(5)
    assert sum(isinstance(effect, Report) for effect in world.done) == MANY
    looks.clear()
    world.later(60)
    assert looks == []


def test_podgroups_without_pods_are_not_looked_at(looks: list[str]) -> None:
    world = two_nodes()
    for i in range(MANY):
        world.tell(GroupSeen(VOLCANO, GroupKey("default", f"g{i}"), a_declaration(min_member=2)))
    world.later(5)
    looks.clear()
    world.later(60)
    assert looks == []


def test_what_a_gang_that_waits_is_told_anew_comes_when_it_may(looks: list[str]) -> None:
    """The same reason with other numbers is reported again after half a minute; no round looks at the gang before."""
    world = two_nodes()
    world.create(a_member("m0", least=3, mem=8))
    world.later(3)
    world.create(a_member("m1", least=3, mem=8))
    looks.clear()
    assert not any(isinstance(effect, Report) for effect in world.later(20))
    assert looks == []
    assert any("2 of 3" in str(effect.reason) for effect in world.later(20) if isinstance(effect, Report))


def test_one_step_looks_at_a_part_of_many_that_wait(looks: list[str]) -> None:
    world = crowd()
    world.later(5)
    waiting = [key for key, known in world.engine.gangs.roster.known.items() if known.gang.phase is Phase.WAITING]
    assert len(waiting) > 200
    looks.clear()
    world.now += 1
    world.tell(Tick())
    assert 0 < len(looks) < len(waiting)
    world.run_slice()
    assert {key.name for key in waiting} <= set(looks)


def test_a_change_of_leader_is_taken_in_part_by_part(looks: list[str]) -> None:
    world = crowd()
    settled: list[str] = []
    settle = GangController.settle

    def counted(self: GangController, known: GangInfo, now: float) -> None:
        settled.append(known.gang.key.name)
        settle(self, known, now)

    with patch.object(GangController, "settle", counted):
        world.tell(Leading(False))
        assert 0 < len(set(settled)) < MANY
        assert not world.engine.gangs.rounds.leading
        world.run_slice()
        assert len(set(settled)) == MANY
        world.tell(Leading(True))
        assert not world.engine.gangs.rounds.leading
        world.run_slice()
        assert world.engine.gangs.rounds.leading


def test_members_of_a_gang_far_back_in_line_are_answered_at_once() -> None:
    """kube-scheduler has one cycle: it does not stand while the plans of others are made."""
    world = two_nodes()
    world.start(a_member("first-0", gang="first", least=1, mem=16))
    world.create(*(pod for i in range(400) for pod in members(8, gang=f"g{i:03}", prefix=f"g{i:03}-", mem=16)))
    world.later(5)
    world.pods.pop("first-0")
    world.now += 1
    world.tell(PodGone("uid-first-0"))
    world.tell(Tick())
    last = max(pod.metadata.name for pod in world.pods.values())
    pod = world.pods[last]
    asked = 0
    while world.engine.prepare(pod, [], world.now):
        asked += 1
    assert asked < 20
    verdict = world.engine.filter(pod, sorted(world.nodes), world.now)
    assert verdict.nodes == ()


def test_a_tick_in_parts_does_what_a_whole_one_does() -> None:
    """Each part is a step of its own, between which others get their turn."""
    told = []
    for whole in (True, False):
        world = crowd()
        for _ in range(20):
            world.now += 0.7
            world.tell(*([Tick()] if whole else world.engine.ticks))
            world.run_slice()
        world.delete("g000-0")
        for _ in range(5):
            world.now += 0.7
            world.tell(*([Tick()] if whole else world.engine.ticks))
            world.run_slice()
        told.append([effect for effect in world.done if not isinstance(effect, Report)])
    assert told[0] == told[1]
    parts = world.engine.ticks
    assert len({tick.part for tick in parts}) == len(parts) > 10
    assert [tick.last for tick in parts] == [False] * (len(parts) - 1) + [True]


def test_members_that_wait_are_not_looked_at_one_by_one() -> None:
    """Preemption and backfill look for pods that wait singly: a waiting gang costs them one look, however large."""
    looked: list[str] = []
    world = two_nodes(backfill_delay_s=1.0)
    world.create(*(a_member(f"g-{i:03}", gang="g", least=MANY, mem=16) for i in range(MANY)), a_pod("single", mem=64))
    of = Quarantine.tried

    def counted(self: Quarantine, items: Iterable[object], *args: Any) -> Iterator[object]:
        kept = list(items)
        looked.extend(each for each in kept if isinstance(each, str))
        return of(self, kept, *args)

    with patch.object(Quarantine, "tried", counted):
        world.later(5)
    assert looked
    assert set(looked) == {"uid-single"}
