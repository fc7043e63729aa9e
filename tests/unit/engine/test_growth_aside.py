"""Nothing is kept of objects over which the engine failed, once they are gone; while they are there, few are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.gangs.controller import GangController
from extender.engine.gangs.observer import GangObserver
from extender.engine.gangs.planner import GangPlanner
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.state import quarantine
from extender.engine.state.classes import Classes
from extender.engine.state.holds import Holds
from extender.engine.state.ledger import Ledger
from extender.engine.state.observe import Observer
from extender.engine.state.running_pods import RunningPods
from extender.engine.types.events import (
    ClassGone,
    ClassSeen,
    GroupGone,
    GroupSeen,
    NodeGone,
    NodeSeen,
    PodSeen,
    QueueGone,
    QueueSeen,
    Tick,
)
from gangfilter.group import GroupKey
from protos.contract.gpu_class import GpuClass
from protos.contract.queue import Queue
from protos.contract.selection import Selection
from tests import growth
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import VOLCANO, a_declaration, members
from tests.unit.engine.passing import Passing
from tests.unit.engine.story import asks_for_room
from tests.unit.engine.test_growth import BOUNDED, FIRST, MORE
from tests.unit.engine.test_quarantine import poison
from tests.unit.engine.test_reservations import reserved

pytestmark = pytest.mark.faults

POISONED: tuple[tuple[type[Any], str, str], ...] = (
    (RunningPods, "see", "unseen"),
    (RunningPods, "forget", "unforgotten"),
    (GangObserver, "forget", "ghost"),
    (Holds, "drop", "undropped"),
    (GangPlanner, "advance", "unplanned"),
    (GangController, "_settle", "unsettled"),
    (Observer, "node", "unread"),
    (Ledger, "drop_node", "undropped"),
    (Ledger, "unbind", "room-uid-reserves"),
    (Classes, "put", "unput"),
    (Classes, "drop", "unput"),
    (Tenancy, "put", "unput"),
    (Tenancy, "drop", "unput"),
)
"""What fails, and over objects of which names."""
PASSES_S = 30.0
"""After so many seconds nothing fails any more."""


def named(word: str) -> Any:
    """Whether it is called with something whose name contains the word."""

    def concerns(*args: Any) -> bool:
        return any(word in str(_name(arg)) for arg in args)

    return concerns


def _name(thing: Any) -> Any:
    for path in ("metadata.name", "gang.key", "key", "ref.uid", "name"):
        found = thing
        for step in path.split("."):
            found = getattr(found, step, None)
        if found is not None:
            return found
    return thing


class Failing(Passing):
    """What passes by and fails."""

    def fails(self, name: str, number: int) -> None:
        """An object of each kind, over which something fails as long as it is there, and as it goes."""
        story = self.story
        for kind in ("unseen", "unforgotten", "ghost", "undropped"):
            pod = self._pod(f"{kind}-{name}", number)
            story.create(pod)
            story.ask(pod.metadata.name)
            story.ask(pod.metadata.name)
            story.show(pod.metadata.name)
            story.delete(pod.metadata.name)
        story.engine.filter(self._pod(f"undropped-never-{name}", number), ["stays-1"], story.now)
        story.engine.filter(self._pod(f"undropped-never-{name}", number), ["stays-1"], story.now)
        self._gangs(name)
        self._definitions(name)
        self._room(name)
        story.later(1.0)

    def _gangs(self, name: str) -> None:
        for kind in ("unplanned", "unsettled", "ghost"):
            gang = f"{kind}-{name}"
            self.tell(GroupSeen(VOLCANO, GroupKey("default", gang), a_declaration(min_member=2)))
            pods = members(2, gang=gang, prefix=f"{gang}-", mem=1)
            self.story.create(*pods)
            self.story.come(*(pod.metadata.name for pod in pods))
            self.story.delete(*(pod.metadata.name for pod in pods))
            self.tell(GroupGone(VOLCANO, GroupKey("default", gang)))

    def _definitions(self, name: str) -> None:
        for kind in ("unread", "undropped"):
            self.tell(NodeSeen(a_node(f"{kind}-{name}", 16)), NodeGone(f"{kind}-{name}"))
        self.tell(
            ClassSeen(GpuClass(name=f"unput-{name}", selection=Selection())),
            ClassGone(f"unput-{name}"),
            QueueSeen(Queue(name=f"unput-{name}")),
            QueueGone(Queue(name="").source, f"unput-{name}"),
        )

    def _room(self, name: str) -> None:
        """One keeps room that cannot be given back at first."""
        pod = asks_for_room(a_pod(f"reserves-{name}", mem=1000), reserved("stays-1", 0, pod=f"reserves-{name}"))
        self.story.create(pod)
        self.tell(PodSeen(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="stays-1"))))
        self.story.delete(pod.metadata.name)


def test_nothing_is_kept_of_what_failed_and_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def lives(world: Failing, numbers: range) -> None:
        with monkeypatch.context() as faulty:
            for kind, method, word in POISONED:
                poison(kind, method, faulty, named(word))
            for number in numbers:
                world.once(number, "fails")
            world.story.later(PASSES_S)
        world.settle()

    world = Failing()
    lives(world, range(FIRST))
    before = growth.sizes(engine=world.story.engine)
    assert world.story.engine.counters["faults", "end"] > FIRST
    lives(world, range(FIRST, FIRST + MORE))
    assert growth.grown(before, growth.sizes(engine=world.story.engine), BOUNDED) == {}
    assert not list(world.story.engine.quarantine.all())


def test_so_many_are_set_aside_at_most_and_the_others_are_tried_like_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "MOST", 50)
    world = Passing()
    with monkeypatch.context() as faulty:
        poison(RunningPods, "see", faulty, named("bad"))
        for number in range(200):
            world.tell(PodSeen(a_pod(f"bad-{number}", mem=1)))
    assert len(world.story.engine.quarantine._known) == len(world.story.engine.quarantine._out) == 50
    world.story.now += 1.0
    world.tell(Tick())
    assert world.story.engine.filter(a_pod("bad-0", mem=1), ["stays-1"], world.story.now).nodes == ("stays-1",)
    assert world.story.engine.filter(a_pod("bad-199", mem=1), ["stays-1"], world.story.now).nodes == ()
