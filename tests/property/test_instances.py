"""Clusters in which some GPUs are cut into MIG instances, held against trying every GPU."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.engine.placement.indexes import Indexes
from extender.engine.placement.ranking import of_room, of_score
from extender.engine.placement.score import Scorer, Seated
from extender.engine.placement.seats import Seats, fits
from extender.engine.placement.shape_scorer import ShapeScorer
from extender.engine.planning.plan import Placement
from extender.engine.queueing.usage import Supply, UsageCalculator
from extender.engine.state.node_state import NodeState
from extender.engine.types.shape import shape
from protos.contract import choose, names
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.queue import GPU, GPUS
from protos.contract.selection import Selection
from tests.builders import an_inventory, cut
from tests.unit.engine.fleets import a_fleet, members, outcome
from tests.unit.engine.story import Story

PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "7g.80gb")
GPU_MEMS = st.lists(st.sampled_from((16, 40, 79)), min_size=1, max_size=4)
Drawn = tuple[list[int], dict[int, list[str]], bool, list[tuple[int, int]], set[int]]
"""Sizes of GPUs, instances by GPU, the strategy single, pods on them, cordoned indexes."""


@st.composite
def nodes(draw: st.DrawFn, *, single: bool = True) -> Drawn:
    mems = draw(GPU_MEMS)
    if uniform := draw(st.integers(0, 3)) == 0:  # instances as large as GPUs
        mems = [79 for _ in mems]
    profiles = st.lists(st.sampled_from(PROFILES[-1:] if uniform else PROFILES), max_size=4)
    instances = draw(st.dictionaries(st.sampled_from(range(len(mems))), profiles))
    held = draw(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 20)), max_size=6))
    return mems, instances, single and draw(st.booleans()), held, draw(st.sets(st.integers(0, 3), max_size=1))


def a_state(name: str, number: int, drawn: Drawn) -> NodeState:
    mems, instances, single, held, cordoned = drawn
    state = NodeState(name, number)
    state.seen, state.allocatable = True, {"cpu": 64_000, "memory": 2**38, "pods": 110}
    found = cut(an_inventory(*mems, node=name), instances, single=single)
    state.books = NodeBooks(found, map(str, cordoned))
    for place, (gpu, mem) in enumerate(held):
        on = list(state.books.gpus.values())[gpu % len(state.books.gpus)]
        demand = state.books.demand(ContainerAsk(name="main", gpus=1, mem=mem), on.gpu)
        if demand is not None and on.fits(demand) and on.gpu.health == "ok":
            state.books.hold(
                f"{name}-{place}",
                PodAsk(containers=(ContainerAsk(name="main", gpus=1, mem=mem),)),
                {on.gpu.uuid: demand},
            )
    return state


CONTAINERS = st.one_of(
    st.builds(
        lambda gpus, mem, slices: ContainerAsk(name="", gpus=gpus, mem=mem, slices=slices),
        st.sampled_from((1, 1, 2)), st.integers(1, 40), st.integers(0, 60),
    ),
    st.builds(lambda gpus: ContainerAsk(name="", gpus=gpus, whole=names.WHOLE_GPU), st.integers(1, 2)),
    st.builds(
        lambda gpus, name: ContainerAsk(name="", gpus=gpus, whole=f"nvidia.com/mig-{name}", profile=name),
        st.integers(1, 2), st.sampled_from((*PROFILES, "1g.5gb")),
    ),
    st.builds(
        lambda gpus, mem, name: ContainerAsk(name="", gpus=gpus, mem=mem, profile=name),
        st.integers(1, 2), st.integers(1, 20), st.sampled_from(PROFILES),
    ),
)  # fmt: skip


@st.composite
def asks(draw: st.DrawFn, most: int = 2) -> PodAsk:
    drawn = draw(st.lists(CONTAINERS, min_size=1, max_size=most))
    containers = tuple(msgspec.structs.replace(each, name=f"c{i}") for i, each in enumerate(drawn))
    return PodAsk(containers=containers, selection=Selection(spread=draw(st.booleans())))


@given(nodes(), st.lists(asks(), min_size=1, max_size=6))
def test_an_instance_has_one_holder_and_a_gpu_in_mig_mode_none(drawn: Drawn, every: list[PodAsk]) -> None:
    books = a_state("n", 0, drawn).books
    assert books is not None
    for number, ask in enumerate(every):
        choice = choose.choose(ask, books)
        if choice is None:
            continue
        for container in ask.containers:
            shares = choice.shares[container.name]
            assert len({share.uuid for share in shares}) == len(shares) == container.gpus
            for share in shares:
                gpu = books.gpus[share.uuid].gpu
                assert gpu.health == "ok"
                assert not container.profile or gpu.profile == container.profile
                if gpu.mig:
                    assert (share.mem, share.whole) == (gpu.mem, True)
                    assert container.mem <= gpu.mem
                    assert 7 * container.slices <= 100 * gpu.slices
                    assert container.profile or container.gpus == 1 or (container.whole and drawn[2])
        books.hold(f"new-{number}", ask, choice.charges)
        assert not books.overused()
        for uuid, book in books.gpus.items():
            holders = [uid for uid, entry in books.entries.items() if uuid in entry.charges]
            assert len(holders) <= 1 or not book.gpu.mig


def smallest(ask: ContainerAsk, books: NodeBooks) -> int:
    """The units of the smallest instance that a part may get now, by trying all."""
    able = [b for b in books.gpus.values() if b.gpu.mig and b.offered and not b.wholes]
    return min((b.gpu.mem for b in able if ask.mem <= b.gpu.mem and 7 * ask.slices <= 100 * b.gpu.slices), default=0)


@given(nodes(), asks(most=1))
def test_of_instances_the_smallest_is_taken_and_never_before_a_shared_gpu(drawn: Drawn, ask: PodAsk) -> None:
    books = a_state("n", 0, drawn).books
    assert books is not None
    choice, (container,) = choose.choose(ask, books), ask.containers
    if choice is None or container.whole or container.profile or container.gpus > 1 or ask.selection.spread:
        return
    (share,) = choice.shares["c0"]
    part = Demand(container.mem, container.slices, False)
    shared = any(b.sharers and b.offered and b.fits(part) for b in books.gpus.values() if not b.gpu.mig)
    if books.gpus[share.uuid].gpu.mig:
        assert not shared
        assert share.mem == smallest(container, books)
    elif not shared:
        assert not smallest(container, books)


@settings(max_examples=200)
@given(st.lists(nodes(), min_size=1, max_size=4), st.lists(asks(), min_size=1, max_size=5))
def test_nodes_rank_as_by_trying_every_gpu(drawn: list[Drawn], every: list[PodAsk]) -> None:
    states = {f"n{i}": a_state(f"n{i}", i, each) for i, each in enumerate(drawn)}
    indexes, seats = Indexes(states), Seats(Scorer(states), states)
    for ask in every:
        indexes.scorer.note(shape(ask, (("cpu", 1000),)))
    while indexes.learn(100):
        pass
    for ask in every:
        of = shape(ask, (("cpu", 1000),))
        ranked = dict(indexes.of(of).ranked())
        assert set(ranked) == {name for name, state in states.items() if fits(ask, state)}
        scores = ShapeScorer(of, indexes.scorer, seats)
        for name, state in states.items():
            assert state.books is not None
            seated = seats.find(ask, state.books)
            if isinstance(seated, Seated):
                seated = indexes.scorer.seated(choose_on(ask, state.books), state.books, spread=ask.selection.spread)
                assert scores.of(state) == of_score(indexes.scorer.points(of, indexes.scorer.node(state), seated))
            elif name not in ranked and not any(each.profile for each in ask.containers):
                assert scores.of(state) == of_room(seated)


def choose_on(ask: PodAsk, books: NodeBooks) -> choose.Choice:
    found = choose.choose(ask, books)
    assert found is not None
    return found


@settings(max_examples=200)
@given(st.lists(nodes(), min_size=1, max_size=3), asks(most=1), st.integers(1, 12))
def test_equal_members_are_placed_if_and_only_if_they_fit_one_after_the_other(
    drawn: list[Drawn], ask: PodAsk, count: int
) -> None:
    states = [a_state(f"n{i}", i, each) for i, each in enumerate(drawn)]
    room = sum(times(ask, state.books) for state in states if state.books is not None)
    found = outcome(a_fleet(*states), members(count, ask, requests=(("cpu", 1000), ("pods", 1))))
    if ask.containers[0].gpus == 1:
        assert isinstance(found, Placement) == (count <= room)
    elif isinstance(found, Placement):
        assert all(assignment.charges for assignment in found.assignments.values())


def times(ask: PodAsk, books: NodeBooks) -> int:
    """How many such pods fit, one after the other."""
    trial, count = books.copy(), 0
    while (choice := choose.choose(ask, trial)) is not None:
        trial.hold(f"t{count}", ask, choice.charges)
        count += 1
    return count


@settings(max_examples=200)
@given(st.lists(nodes(), min_size=1, max_size=3), st.lists(asks(), min_size=1, max_size=5))
def test_what_fits_is_not_called_too_large_and_uses_no_more_than_was_estimated(
    drawn: list[Drawn], every: Sequence[PodAsk]
) -> None:
    from extender.engine.types.events import NodeSeen
    from protos.contract import inventory
    from tests.builders import a_node

    story = Story()
    for number, (mems, instances, single, _, _) in enumerate(drawn):
        text = inventory.encode(cut(an_inventory(*mems, node=f"n{number}"), instances, single=single))
        story.tell(NodeSeen(a_node(f"n{number}", annotations={names.GPUS: text})))
    components = story.engine._components
    usage, supply = UsageCalculator(components.ledger), Supply(components.ledger)
    for name, node in story.engine.nodes.items():
        assert node.books is not None
        usage.node(name, node.books.inventory, names.WHOLE_GPU)
        gpus = [book.gpu for book in node.books.gpus.values() if book.gpu.health == "ok"]
        assert supply.of_node(name)[GPUS] == sum(GPU * gpu.slices // 7 if gpu.mig else GPU for gpu in gpus)
    for number, ask in enumerate(every):
        estimate = usage._estimate(ask)
        for node in story.engine.nodes.values():
            assert node.books is not None
            choice = choose.choose(ask, node.books)
            if choice is None:
                continue
            assert components.cannot_fit.why(ask) is None
            node.books.hold(f"uid-{number}", ask, choice.charges)
            used = 0
            for uuid, demand in choice.charges.items():
                gpu = node.books.gpus[uuid].gpu
                unit = GPU * gpu.slices // 7 if gpu.mig else GPU
                used += unit if demand.whole else max(demand.mem * GPU // gpu.mem, demand.slices * GPU // 100)
            assert used <= estimate
            node.books.release(f"uid-{number}")
