"""Members of a gang that ask alike get GPUs of one model, unless they allow several."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from extender.engine.planning.attempt import ClusterView
from extender.engine.planning.one_model import Mixture
from extender.engine.planning.plan import Placement
from extender.engine.planning.shortage import Shortage
from extender.engine.state.seats import Seat
from extender.engine.types.effects import Requeue
from extender.engine.types.events import NodeGone
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.ask import Demand
from protos.contract.objects import Pod
from tests.builders import a_node, a_pod
from tests.unit.engine import gang_story
from tests.unit.engine.fleets import a_fleet, a_state, an_ask, members, outcome, places, whole
from tests.unit.engine.gang_story import GangStory, a_member
from tests.unit.engine.preemption_story import PreemptionStory, a_single, urgent

MIX = {names.MIXED_MODELS: "allow"}


def models_of(fleet: ClusterView, seats: list[Seat], minimum: list[Seat] | None = None) -> Counter[str]:
    """How many members get GPUs of each model; it is an error if the gang does not fit."""
    found = outcome(fleet, seats, minimum)
    assert isinstance(found, Placement), found
    books = {name: node.books for name, node in fleet.nodes.items()}
    taken = ((books[a.node], uuid) for a in found.assignments.values() for uuid in a.charges)
    return Counter(held.gpus[uuid].gpu.model for held, uuid in taken if held is not None)


def two_models(*, a100: int, t4: int) -> ClusterView:
    """A node with so many A100s, and one with so many T4s."""
    first = a_state("a", 0, *[40] * a100, models=["A100"] * a100)
    return a_fleet(first, a_state("b", 1, *[16] * t4, models=["T4"] * t4))


@pytest.mark.parametrize(("a100", "t4", "model"), [(2, 4, "T4"), (4, 2, "A100"), (3, 3, "A100")])
def test_a_gang_goes_to_the_model_that_has_enough(a100: int, t4: int, model: str) -> None:
    assert models_of(two_models(a100=a100, t4=t4), members(3, whole())) == {model: 3}


def test_a_gang_that_fits_on_several_models_only_is_told_so_and_fits_where_it_allows_them() -> None:
    fleet = two_models(a100=2, t4=2)
    assert outcome(fleet, members(3, whole())) == Mixture()
    assert models_of(fleet, members(3, whole(mixed=True))) == {"A100": 2, "T4": 1}
    short = outcome(fleet, members(5, whole()))
    assert isinstance(short, Shortage), "it would not fit on several models either"


def test_on_one_node_with_several_models_a_gang_is_kept_to_one() -> None:
    fleet = a_fleet(a_state("a", 0, *[40] * 2, *[16] * 4, models=["A100"] * 2 + ["T4"] * 4))
    assert models_of(fleet, members(3, an_ask(mem=16))) == {"T4": 3}
    assert models_of(fleet, members(2, an_ask(2, mem=10))) == {"T4": 4}


def test_members_that_ask_differently_may_get_different_models() -> None:
    fleet = two_models(a100=2, t4=2)
    gang = [*members(2, an_ask(mem=30), "large"), *members(2, an_ask(mem=16), "small")]
    assert models_of(fleet, gang) == {"A100": 2, "T4": 2}


def test_each_of_several_requests_finds_its_model() -> None:
    """The A100s suit both; only if the second request gets them do both fit."""
    fleet = a_fleet(
        a_state("a", 0, 40, 40, models=["A100"] * 2),
        a_state("b", 1, 16, 16, models=["T4"] * 2),
        a_state("c", 2, 24, models=["L4"]),
    )
    gang = [*members(2, an_ask(mem=15), "x"), *members(2, an_ask(mem=14, slices=50), "y")]
    assert sum(models_of(fleet, gang).values()) == 4


def test_the_smallest_start_is_kept_to_one_model_too() -> None:
    seats = members(4, whole())
    assert sum(models_of(two_models(a100=2, t4=3), seats, seats[:3]).values()) == 3


def test_one_member_may_get_any_model() -> None:
    assert models_of(two_models(a100=1, t4=0), members(1, whole())) == {"A100": 1}


def test_nodes_with_unknown_models_are_taken_by_themselves() -> None:
    fleet = a_fleet(
        a_state("a", 0, 40, models=["A100"]),
        a_state("b", 1, 16, models=["T4"]),
        a_state("c", 2, **{names.WHOLE_GPU: 3}),
    )
    assert set(places(fleet, members(3, whole())).values()) == {"c"}
    assert outcome(fleet, members(4, whole())) == Mixture()


@pytest.mark.parametrize("seed", range(30))
def test_a_gang_of_whole_gpus_starts_exactly_where_a_model_has_enough(seed: int) -> None:
    draw = random.Random(seed)
    states = []
    for number in range(5):
        kinds = [draw.choice(("T4", "A100", "L4")) for _ in range(draw.randint(1, 6))]
        states.append(a_state(f"n{number}", number, *[16] * len(kinds), models=kinds))
    each, count = draw.choice((1, 1, 2)), draw.randint(2, 6)
    free: Counter[str] = Counter()
    for state in states:
        assert state.books is not None
        for uuid in state.books.gpus:
            if draw.random() < 0.4:
                state.books.hold(uuid, an_ask(mem=1), {uuid: Demand(1, 0, False)})
        idle = Counter(book.gpu.model for book in state.books.gpus.values() if book.idle)
        free.update({model: n // each for model, n in idle.items()})
    found = outcome(a_fleet(*states), members(count, whole(each)))
    if max(free.values(), default=0) >= count:
        assert isinstance(found, Placement)
    else:
        assert found == Mixture() if free.total() >= count else isinstance(found, Shortage)


# -- gangs that run


def workers(count: int, **fields: Any) -> list[Pod]:
    return gang_story.members(count, whole=1, mem=0, **fields)


def model_of(story: GangStory, name: str) -> str:
    state = story.engine.pods[story.pods[name].metadata.uid]
    books = story.engine.nodes[state.node].books
    assert books is not None
    (uuid,) = books.entries[state.ref.uid].charges
    return books.gpus[uuid].gpu.model


def a_world(**settings: Any) -> GangStory:
    """Four A100s, and four T4s."""
    nodes = a_node("a", *[40] * 4, models=["A100"] * 4), a_node("b", *[16] * 4, models=["T4"] * 4)
    return GangStory(*nodes, **settings)


def test_a_member_that_comes_later_gets_the_model_of_its_equals_also_after_a_restart() -> None:
    story = a_world()
    story.start(*workers(3))
    first = model_of(story, "m0")
    assert {model_of(story, name) for name in story.pods} == {first}
    story.restart()
    story.create(*workers(1, prefix="late", least=3))
    assert story.come("late0") == ["flying"]
    story.land()
    assert model_of(story, "late0") == first
    story.create(*workers(1, prefix="more", least=3), a_member("mixed", whole=1, annotations=MIX))
    assert story.come("more0") == ["NoRoom"], "its model is used up"
    assert story.come("mixed") == ["flying"]


def test_a_replacement_gets_the_model_of_its_equals() -> None:
    story = a_world(replacement_hold_s=0.0)
    story.start(*workers(3))
    first = model_of(story, "m0")
    story.delete("m1")
    story.create(*workers(1, prefix="again", least=3))
    assert story.come("again0") == ["flying"]
    story.land()
    assert model_of(story, "again0") == first
    assert story.phase() is Phase.RUNNING


def test_a_held_replacement_is_found_though_the_new_pod_is_kept_to_its_model() -> None:
    story = a_world()
    story.start(*workers(3, lost="wait"))
    before = story.engine.pods["uid-m1"].node
    story.delete("m1")
    assert story.known().replacements
    story.create(*workers(1, prefix="again", least=3, lost="wait"))
    assert not story.known().replacements
    assert story.come("again0") == ["flying"]
    assert story.flying["again0"].node == before


def test_the_refusal_names_the_annotation_and_a_member_waits_with_it() -> None:
    story = a_world()
    story.create(*workers(6))
    assert story.why() == "GangMixedModels"
    assert story.come("m0") == ["GangMixedModels"]
    assert "gangshare.io/mixed-models: allow permits" in str(story.known().reason)
    for name in list(story.pods):
        story.change(name, annotations=story.pods[name].metadata.annotations | MIX)
    story.later(1)
    assert story.phase() is Phase.STARTING


def test_room_is_made_on_one_model() -> None:
    """Two T4s are free already; both A100s must go, as one more T4 is held by somebody of higher priority."""
    nodes = a_node("a", *[40] * 3, models=["A100"] * 3), a_node("b", *[16] * 3, models=["T4"] * 3)
    world = PreemptionStory(*nodes)
    for i in range(3):
        world.runs(a_single(f"low{i}", 30))
    world.runs(a_single("high", 16, 2000, annotations={names.GPU_MODEL: "T4"}))
    world.later(11)
    world.create(*(urgent(pod, 1000) for pod in workers(3)))
    world.come("m0", "m1", "m2")
    assert world.preempt() == ["low0", "low1", "low2"]


def test_members_that_were_there_before_the_start_are_kept_to_its_model_and_free_after_it() -> None:
    story = a_world()
    story.create(*workers(6, least=3, lost="restart"))
    story.come(*sorted(story.pods))
    story.land()
    story.come("m3", "m4", "m5")
    story.land()
    bound = [name for name, pod in story.pods.items() if pod.spec.node_name]
    assert len(bound) == 4
    assert len({model_of(story, name) for name in bound}) == 1
    (node,) = {story.pods[name].spec.node_name for name in bound}
    for name in bound:
        story.delete(name)
    story.tell(NodeGone(str(node)))
    story.create(*workers(2, prefix="again", least=3, lost="restart"))
    story.later(1)
    assert story.phase() is Phase.STARTING, "those left may go to the other model"


def test_the_gate_of_a_member_stays_while_only_another_model_has_room() -> None:
    story = a_world()
    story.start(*workers(4))
    gate = {"schedulingGates": [{"name": names.PLAN_GATE}]}
    story.create(*workers(1, prefix="late", least=4, spec=gate), a_pod("single", whole=1, spec=gate))
    story.later(3)
    assert [e.pod.name for e in story.done if isinstance(e, Requeue) and e.gated] == ["single"]
