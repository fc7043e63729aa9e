"""Equal members swap places when kube-scheduler offers one of them the node of another."""

from __future__ import annotations

from typing import Any

from extender.engine.gangs.controller import REFUSED_AGAIN_S
from extender.engine.types.effects import Requeue
from gangfilter.table import Phase
from tests.builders import a_node
from tests.unit.engine.gang_story import GangStory, a_member, members

HOST = "kubernetes.io/hostname"


def a_world(count: int = 2, **fields: Any) -> GangStory:
    """A gang with a place for each member, one GPU of 16 a node, before any filter."""
    world = GangStory(*(a_node(f"n{i}", 16) for i in range(count)))
    world.create(*members(count, mem=16, **fields))
    assert world.phase() is Phase.STARTING
    return world


def place(world: GangStory, name: str) -> str:
    return world.engine.pods[world.pods[name].metadata.uid].node


def test_who_is_asked_about_first_takes_the_place_that_is_offered() -> None:
    world = a_world()
    mine, theirs = place(world, "m0"), place(world, "m1")
    assert world.ask("m0", [theirs]).nodes == (theirs,)
    assert (place(world, "m0"), place(world, "m1")) == (theirs, mine)
    assert world.bind("m0", theirs) == "held"
    assert world.come("m1") == ["flying"]
    assert {name: found.node for name, found in world.flying.items()} == {"m0": theirs, "m1": mine}


def test_a_place_is_not_taken_from_one_that_is_in_bind() -> None:
    world = a_world()
    theirs = place(world, "m1")
    assert world.come("m1") == ["held"]
    assert world.ask("m0", [theirs]).nodes == ()
    assert place(world, "m1") == theirs


def test_others_than_its_like_keep_theirs() -> None:
    world = GangStory(a_node("n0", 16), a_node("n1", 8))
    world.create(a_member("m0", least=2, mem=16), a_member("m1", least=2, mem=8))
    assert world.phase() is Phase.STARTING
    assert world.ask("m0", [place(world, "m1")]).nodes == ()
    assert [place(world, "m0"), place(world, "m1")] == ["n0", "n1"]


def test_the_question_about_a_nominated_node_alone_moves_nobody() -> None:
    world = a_world()
    mine, theirs = place(world, "m0"), place(world, "m1")
    assert world.ask("m0", [theirs], nominated=theirs).nodes == ()
    assert (place(world, "m0"), place(world, "m1")) == (mine, theirs)


def test_nobody_is_given_a_place_that_was_refused_before() -> None:
    world = a_world(3)
    before = {name: place(world, name) for name in ("m0", "m1", "m2")}
    away = before["m0"]
    others = [node for node in world.nodes if node != away]
    world.come("m1", "m2")
    world.ask("m0", others)
    world.now += REFUSED_AGAIN_S
    world.ask("m0", others)  # for the second time: the gang is planned again, m0 elsewhere
    world.run_slice()
    mine = place(world, "m0")
    (there,) = (name for name in ("m1", "m2") if place(world, name) == away)
    assert world.ask(there, [mine]).nodes == ()
    assert (place(world, "m0"), place(world, there)) == (mine, away)


def test_who_must_be_spread_is_woken_without_a_nomination() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"role": "worker"}},
    }
    for spec, nominated in (({"topologySpreadConstraints": [constraint]}, False), ({}, True)):
        world = GangStory(a_node("n0", 16), a_node("n1", 16))
        first, second = members(2, mem=8, labels={"role": "worker"}, spec=spec)
        world.create(first)
        world.come("m0")
        world.create(second)
        (woken,) = (effect for effect in world.done if isinstance(effect, Requeue))
        assert woken.node
        assert woken.nominate is nominated
