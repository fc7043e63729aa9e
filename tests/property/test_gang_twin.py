"""Gangs under arbitrary histories: deaths, lost Bindings, refusals, restarts. A naive world keeps the truth."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.engine.types.sliced import Sliced
from tests.property.gang_truth import NODES
from tests.property.gang_world import GangWorld
from tests.property.gated_world import GatedWorld


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans on so few nodes would be made in one go."""
    monkeypatch.setattr(Sliced.advance, "__defaults__", (100,))


class GangsAndTwin(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world: GangWorld = GangWorld(random.Random(0))

    @rule(
        seed=st.integers(0, 99),
        size=st.integers(2, 5),
        spare=st.integers(0, 2),
        owned=st.booleans(),
        lost=st.sampled_from(["wait", "restart"]),
        ends=st.booleans(),
        launcher=st.booleans(),
        late=st.integers(0, 2),
    )
    def a_gang_is_made(
        self, seed: int, size: int, spare: int, owned: bool, lost: str, ends: bool, launcher: bool, late: int
    ) -> None:
        self.world.draw = random.Random(seed)
        least = max(1, size - spare)
        self.world.make_gang(
            size, least, owned=owned, lost=lost, ends=ends and launcher, launcher=launcher, now=size - late
        )

    @rule(seed=st.integers(0, 99))
    def a_single_pod_is_made(self, seed: int) -> None:
        self.world.draw = random.Random(seed)
        self.world.make_single()

    @precondition(lambda self: self.world.missing)
    @rule()
    def a_controller_makes_a_pod(self) -> None:
        self.world.controller_acts()

    @precondition(lambda self: self.world.coming)
    @rule(data=st.data(), bind=st.booleans())
    def kube_scheduler_takes_a_pod(self, data: st.DataObject, bind: bool) -> None:
        self.world.take(data.draw(st.sampled_from(sorted(self.world.coming))), bind=bind)

    @precondition(lambda self: self.world.coming)
    @rule()
    def kube_scheduler_takes_all_that_come(self) -> None:
        for name in sorted(self.world.coming):
            self.world.take(name)

    @precondition(lambda self: self.world.offers)
    @rule(data=st.data())
    def an_offered_pod_goes_to_bind(self, data: st.DataObject) -> None:
        self.world.goes_to_bind(data.draw(st.sampled_from(sorted(self.world.offers))))

    @rule()
    def all_refused_pods_are_asked_for_again(self) -> None:
        self.world.everybody_is_asked_again()

    @precondition(lambda self: self.world.held)
    @rule(data=st.data())
    def nobody_waits_for_a_held_bind(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.held)))
        self.world.leave(name)
        self.world.coming.add(name)

    @precondition(lambda self: self.world.flying)
    @rule(data=st.data(), happened=st.booleans(), told=st.booleans())
    def a_binding_ends(self, data: st.DataObject, happened: bool, told: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.flying)))
        self.world.binding_ends(name, happened=happened, told=told)

    @precondition(lambda self: self.world.flying)
    @rule()
    def all_bindings_take(self) -> None:
        for name in sorted(self.world.flying):
            self.world.binding_ends(name, happened=True)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), how=st.sampled_from(["deleted", "ended", "failed", "refused", "shown"]))
    def something_happens_to_a_pod(self, data: st.DataObject, how: str) -> None:
        happens(self.world, data.draw(st.sampled_from(sorted(self.world.pods))), how)

    @precondition(lambda self: self.world.to_go)
    @rule(data=st.data())
    def an_eviction_is_carried_out(self, data: st.DataObject) -> None:
        self.world.eviction_happens(data.draw(st.sampled_from(sorted(self.world.to_go))))

    @rule(name=st.sampled_from(sorted(NODES)))
    def a_node_goes_or_comes(self, name: str) -> None:
        goes_or_comes(self.world, name)

    @rule(closed=st.frozensets(st.sampled_from(sorted(NODES)), max_size=2))
    def kube_scheduler_refuses_some_nodes_itself(self, closed: frozenset[str]) -> None:
        self.world.closed = set(closed)
        self.world.everybody_is_asked_again()

    @rule(yes=st.booleans())
    def another_process_leads_or_we(self, yes: bool) -> None:
        if yes != self.world.leads:
            self.world.lead(yes)

    @rule(landed=st.booleans())
    def another_process_takes_over(self, landed: bool) -> None:
        self.world.the_other_takes_over(landed=landed)

    @rule(landed=st.booleans())
    def the_extender_restarts(self, landed: bool) -> None:
        self.world.extender_restarts(landed=landed)

    @rule(seconds=st.sampled_from([0.1, 1.5, 6.0, 20.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.passes_time(seconds)

    @rule()
    def a_new_process_would_have_the_same_books(self) -> None:
        self.world.replay_says_the_same()

    @invariant()
    def all_promises_hold(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.stands_still()


def happens(world: GangWorld, name: str, how: str) -> None:
    bound = world.alive_at_node(name)
    match how:
        case "deleted":
            world.vanish(name)
        case "ended" | "failed" if bound:
            world.ends(name, well=how == "ended")
        case "refused" if bound:
            world.kubelet_refuses(name)
        case "shown":
            world.show(name)


def goes_or_comes(world: GangWorld, name: str) -> None:
    if name in world.nodes:
        world.node_goes(name)
    else:
        world.node_comes(name)


class GatedGangsAndTwin(GangsAndTwin):
    """The same, behind the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.world: GatedWorld = GatedWorld(random.Random(0))

    @rule()
    def gates_are_removed(self) -> None:
        self.world.gates_go()


SEEDS = [*range(40), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(40, 1_000))]

TestGangsAndTwin = GangsAndTwin.TestCase
TestGangsAndTwin.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGatedGangsAndTwin = GatedGangsAndTwin.TestCase
TestGatedGangsAndTwin.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_busy_cluster(seed: int) -> None:
    """The same, drawn so that the cluster is mostly full and gangs come and go; then it comes to rest."""
    draw = random.Random(seed)
    lives(GangWorld(draw), draw)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_busy_cluster_whose_pods_are_born_gated(seed: int) -> None:
    """Whoever waits behind the gate though it could start is found by the same check."""
    draw = random.Random(seed)
    world = GatedWorld(draw)
    lives(world, draw, {world.gates_go: 8})


def lives(world: GangWorld, draw: random.Random, more: Mapping[Callable[[], None], int] | None = None) -> None:
    """A hundred things happen to the world, and `more` of this kind; then it comes to rest."""

    def a_gang() -> None:
        size, launcher = draw.randint(2, 5), draw.random() < 0.3
        world.make_gang(
            size, max(1, size - draw.choice([0, 0, 1, 2])), owned=draw.random() < 0.8,
            lost=draw.choice(["wait", "restart"]), ends=launcher and draw.random() < 0.5, launcher=launcher,
            now=draw.choice([size, size, size - 1]),
        )  # fmt: skip

    def all_come() -> None:
        for name in draw.sample(sorted(world.coming), len(world.coming)):
            world.take(name, bind=draw.random() < 0.9)

    def bindings_end() -> None:
        for name in sorted(world.flying):
            world.binding_ends(name, happened=draw.random() < 0.8, told=draw.random() < 0.8)

    def to_a_pod() -> None:
        if world.pods:
            happens(
                world, draw.choice(sorted(world.pods)), draw.choice(["deleted", "ended", "ended", "failed", "refused"])
            )

    def evictions() -> None:
        for name in sorted(world.to_go):
            world.eviction_happens(name)

    def offers_go_on() -> None:
        for name in sorted(world.offers):
            world.goes_to_bind(name)

    def nodes_close() -> None:
        world.closed = set(draw.sample(sorted(NODES), draw.choice([0, 0, 1])))
        world.everybody_is_asked_again()

    steps: dict[Callable[[], None], int] = {
        a_gang: 4,
        world.make_single: 1,
        world.controller_acts: 6,
        all_come: 12,
        offers_go_on: 4,
        bindings_end: 8,
        to_a_pod: 6,
        evictions: 4,
        lambda: goes_or_comes(world, draw.choice(sorted(NODES))): 1,
        nodes_close: 1,
        world.everybody_is_asked_again: 1,
        lambda: world.passes_time(draw.choice([0.1, 1.5, 6.0, 20.0])): 8,
        lambda: world.extender_restarts(landed=draw.random() < 0.5): 1,
        lambda: world.the_other_takes_over(landed=draw.random() < 0.5): 1,
        lambda: world.lead(not world.leads): 1,
        world.replay_says_the_same: 1,
        **(more or {}),
    }
    for step in draw.choices(list(steps), list(steps.values()), k=100):
        step()
        world.check()
    world.stands_still()
