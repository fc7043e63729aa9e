"""Plans of whole gangs: the place of each member, changes during a plan, and the sentence if the gang does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
import pytest

from extender.engine.placement.indexes import Indexes
from extender.engine.planning.attempt import ClusterView
from extender.engine.planning.plan import Placement, Plan
from extender.engine.state.intree import Constraints
from extender.engine.state.seats import Seat, least
from protos.contract import names
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.objects import Taint
from tests.unit.engine.fleets import OURS, POD, a_fleet, a_state, an_ask, members, missing, outcome, places, whole


def on(found: Mapping[str, str]) -> dict[str, int]:
    """Members by node."""
    return dict(sorted(Counter(found.values()).items()))


def take(fleet: ClusterView, name: str, uuid: str, mem: int, uid: str = "other") -> None:
    """Another pod gets this much of a GPU, as the ledger would book it."""
    node = fleet.nodes[name]
    assert node.books is not None
    node.books.hold(uid, an_ask(mem=mem), {uuid: Demand(mem, 0, False)})
    node.version += 1
    fleet.indexes.stale(name)


def needing(**amounts: int) -> tuple[tuple[str, int], ...]:
    return tuple(sorted({"pods": 1, **amounts}.items()))


# -- places


def test_a_gang_gets_all_its_gpus_and_the_books_know_nothing_of_it() -> None:
    fleet = a_fleet(a_state("a", 0, 40, 40), a_state("b", 1, 40, 40))
    found = outcome(fleet, members(4, whole()))
    assert isinstance(found, Placement)
    taken = sorted((assignment.node, *assignment.charges) for assignment in found.assignments.values())
    assert taken == [("a", "GPU-a-0"), ("a", "GPU-a-1"), ("b", "GPU-b-0"), ("b", "GPU-b-1")]
    assert all(
        {share.uuid for share in assignment.shares["main"]} == set(assignment.charges)
        for assignment in found.assignments.values()
    )
    for node in fleet.nodes.values():
        assert node.books is not None
        assert node.books.entries == {}
        assert node.used == {}


def test_nobody_is_a_gang_that_fits() -> None:
    assert outcome(a_fleet(), []) == Placement({})


def test_a_gang_fills_nodes_that_are_in_use_before_it_opens_others() -> None:
    fleet = a_fleet(*(a_state(f"n{i}", i, 40, 40) for i in range(4)))
    take(fleet, "n2", "GPU-n2-0", 20)
    assert on(places(fleet, members(6, an_ask(mem=20)))) == {"n0": 3, "n2": 3}


def test_who_wants_to_be_spread_is_spread() -> None:
    fleet = a_fleet(*(a_state(f"n{i}", i, 40, 40) for i in range(4)))
    assert on(places(fleet, members(4, an_ask(mem=20, spread=True)))) == {"n0": 1, "n1": 1, "n2": 1, "n3": 1}


def test_one_gang_has_many_shapes() -> None:
    fleet = a_fleet(a_state("a", 0, 40, 40, 40, 40), a_state("b", 1, 40, 40, 40, 40), a_state("c", 2))
    gang = [
        *members(1, None, "launcher"),
        *members(2, None, "ps", requests=needing(cpu=8000)),
        *members(4, an_ask(mem=10), "small"),
        *members(2, an_ask(slices=50, mem=5), "sliced"),
        *members(1, an_ask(2, mem=20), "pair"),
        *members(2, whole(2), "worker"),
    ]
    found = places(fleet, gang)
    assert len(found) == 12
    assert {found[uid] for uid in ("launcher0", "ps0", "ps1")} == {"c"}


def test_the_hardest_shapes_choose_first() -> None:
    """Small members that came first would else sit on GPUs of both nodes that the others need whole."""
    fleet = a_fleet(a_state("a", 0, 40, 40), a_state("b", 1, 40, 40))
    gang = [*members(4, an_ask(mem=10), "small"), *members(1, an_ask(mem=40), "big"), *members(1, whole(2), "pair")]
    found = places(fleet, gang)
    assert found["pair0"] != found["big0"]
    assert {found[f"small{i}"] for i in range(4)} == {found["big0"]}


def test_dozens_of_members_go_to_one_node() -> None:
    fleet = a_fleet(a_state("a", 0, 80), a_state("b", 1, 10))
    assert on(places(fleet, members(80, an_ask(mem=1), requests=needing()))) == {"a": 70, "b": 10}


def test_a_pod_with_several_containers_is_placed_as_one() -> None:
    containers = tuple(ContainerAsk(name=name, gpus=1, mem=30) for name in ("one", "two"))
    fleet = a_fleet(a_state("a", 0, 40), a_state("b", 1, 40, 40))
    found = outcome(fleet, members(1, PodAsk(containers=containers)))
    assert isinstance(found, Placement)
    assignment = found.assignments["m0"]
    assert assignment.node == "b"
    assert {share.uuid for given in assignment.shares.values() for share in given} == {"GPU-b-0", "GPU-b-1"}


def test_gpus_asked_for_by_uuid_are_those() -> None:
    fleet = a_fleet(*(a_state(f"n{i}", i, 40, 40) for i in range(3)))
    found = outcome(fleet, members(2, an_ask(mem=20, uuids=("GPU-n1-1",))))
    assert isinstance(found, Placement)
    assert [list(assignment.charges) for assignment in found.assignments.values()] == [["GPU-n1-1"]] * 2


def test_gpus_asked_for_by_uuid_are_told_apart_on_nodes_that_are_else_alike() -> None:
    fleet = a_fleet(*(a_state(f"n{i}", i, 40, 40) for i in range(2)))
    found = outcome(fleet, members(2, whole(uuids=("GPU-n0-1", "GPU-n1-0"))))
    assert isinstance(found, Placement)
    assert [list(assignment.charges) for assignment in found.assignments.values()] == [["GPU-n0-1"], ["GPU-n1-0"]]


def test_several_gpus_of_one_member_are_linked() -> None:
    links = [(0, 1, "NV2"), (2, 3, "NV2")]
    fleet = a_fleet(a_state("a", 0, 40, 40, 40, 40, links=links), a_state("b", 1, 40, 40, 40, 40))
    found = outcome(fleet, members(2, whole(2, link="nvlink")))
    assert isinstance(found, Placement)
    assert [set(assignment.charges) for assignment in found.assignments.values()] == [
        {"GPU-a-0", "GPU-a-1"},
        {"GPU-a-2", "GPU-a-3"},
    ]
    assert missing(fleet, members(3, whole(2, link="nvlink"))).short == 1


def test_where_several_gpus_of_one_member_lie_is_chosen_so_that_all_fit() -> None:
    """GPUs 0 and 1 have room for one each, GPU 2 for two: filling the fullest first would leave GPU 2 alone."""
    fleet = a_fleet(a_state("a", 0, 40, 40, 40))
    take(fleet, "a", "GPU-a-0", 30, "x")
    take(fleet, "a", "GPU-a-1", 30, "y")
    take(fleet, "a", "GPU-a-2", 20, "z")
    found = outcome(fleet, members(2, an_ask(2, mem=10)))
    assert isinstance(found, Placement)
    assert all("GPU-a-2" in assignment.charges for assignment in found.assignments.values())


def test_that_all_fit_is_no_reason_to_give_one_member_gpus_of_two_models() -> None:
    """Of the T4s 0 and 1 have room for one each, GPU 2 for two; the A100 has room for many."""
    fleet = a_fleet(a_state("a", 0, 40, 40, 40, 40, models=["T4", "T4", "T4", "A100"]))
    for gpu, amount in (("0", 30), ("1", 30), ("2", 20)):
        take(fleet, "a", f"GPU-a-{gpu}", amount, gpu)
    found = outcome(fleet, members(2, an_ask(2, mem=10)))
    assert isinstance(found, Placement)
    assert all("GPU-a-2" in a.charges and "GPU-a-3" not in a.charges for a in found.assignments.values())
    assert missing(fleet, members(3, an_ask(2, mem=10))).short == 1
    assert len(places(fleet, members(3, an_ask(2, mem=10, mixed=True)))) == 3


def test_all_fit_is_no_reason_to_take_gpus_that_are_not_linked() -> None:
    fleet = a_fleet(a_state("a", 0, 10, 10, 20, links=[(0, 1, "NV2")]))
    assert len(places(fleet, members(2, an_ask(2, mem=10)))) == 2
    assert missing(fleet, members(2, an_ask(2, mem=10, link="nvlink"))).short == 1


@pytest.mark.parametrize("problem", ["leaving", "unseen", "unit", "sick"])
def test_a_node_that_takes_nobody_takes_no_gang(problem: str) -> None:
    state = a_state("a", 0, 40)
    assert state.books is not None
    if problem == "leaving":
        state.books.set_inventory(msgspec.structs.replace(state.books.inventory, state="leaving"))
    elif problem == "sick":
        state.books.set_inventory(state.books.inventory, cordoned=["0"])
    state.seen = problem != "unseen"
    state.problem = "it counts in another unit" * (problem == "unit")
    assert missing(a_fleet(state), members(1, an_ask(mem=10))).short == 1


# -- in-tree


def test_cpu_memory_and_pod_slots_count_for_every_member() -> None:
    fleet = a_fleet(a_state("a", 0, *[40] * 8, cpu=5000, memory=2**38), a_state("b", 1, *[40] * 8, pods=4))
    fleet.nodes["b"].used = {"pods": 1}
    assert on(places(fleet, members(5, whole(), requests=needing(cpu=2000)))) == {"a": 2, "b": 3}
    short = missing(fleet, members(7, whole(), requests=needing(cpu=2000)))
    assert short.passed == ((1, "short of cpu"), (1, "short of pod slots"))


def test_our_own_resources_are_not_held_against_a_node_with_books() -> None:
    fleet = a_fleet(a_state("a", 0, 40))
    ours = needing(**{names.GPU_MEM: 40, "cpu": 1})
    assert on(places(fleet, members(1, an_ask(mem=40), requests=ours))) == {"a": 1}


def test_whole_gpus_of_a_node_without_books_are_counted_by_its_total() -> None:
    fleet = a_fleet(a_state("a", 0, **{names.WHOLE_GPU: 4}), a_state("b", 1, **{names.WHOLE_GPU: 1}))
    fleet.nodes["a"].used = {names.WHOLE_GPU: 1}
    found = outcome(fleet, members(4, whole(), requests=needing()))
    assert isinstance(found, Placement)
    assert on({uid: assignment.node for uid, assignment in found.assignments.items()}) == {"a": 3, "b": 1}
    assert all(assignment.charges == {} for assignment in found.assignments.values())
    assert missing(fleet, members(5, whole(), requests=needing())).short == 1


def test_parts_of_gpus_need_books() -> None:
    """A node that takes a member of the gang does not serve parts of GPUs for that reason."""
    fleet = a_fleet(a_state("a", 0, **{names.GPU_MEM: 80}), a_state("b", 1, 40))
    gang = [*members(1, None, "launcher"), *members(2, an_ask(mem=30), requests=needing(**{names.GPU_MEM: 30}))]
    assert missing(fleet, gang).short == 1


def test_other_extended_resources_are_counted_by_node_total() -> None:
    npu = "huawei.com/Ascend910"
    fleet = a_fleet(a_state("a", 0, **{npu: 8}), a_state("b", 1, **{npu: 8}), a_state("c", 2))
    fleet.nodes["a"].used = {npu: 4}
    gang = members(3, requests=needing(**{npu: 4}))
    assert on(places(fleet, gang)) == {"a": 1, "b": 2}
    short = missing(fleet, members(4, requests=needing(**{npu: 4})))
    assert str(short).startswith("needs 4×4 huawei.com/Ascend910; 3 can be placed: b 2, a 1; short by 1")


def test_members_without_gpus_leave_the_cpus_of_gpu_nodes_alone() -> None:
    states = [a_state("gpu", 0, 40), a_state("busy", 1, cpu=8000), a_state("idle", 2, cpu=8000)]
    fleet = a_fleet(*states)
    states[1].used = {"cpu": 4000}
    assert on(places(fleet, members(2, requests=needing(cpu=2000)))) == {"idle": 2}
    assert on(places(fleet, members(7, requests=needing(cpu=2000)))) == {"busy": 2, "gpu": 1, "idle": 4}


def test_members_without_gpus_need_no_inventory_in_order() -> None:
    state = a_state("a", 0)
    state.problem = "malformed"
    assert on(places(a_fleet(state), members(2))) == {"a": 2}


def test_constraints_and_exclusions_keep_members_off() -> None:
    taint = Taint(key="k", effect="NoSchedule")
    fleet = a_fleet(
        a_state("tainted", 0, 40, taints=[taint]), a_state("zone-a", 1, 40, labels={"zone": "a"}),
        a_state("ruled-out", 2, 40, labels={"zone": "a"}), a_state("zone-b", 3, 40, labels={"zone": "b"}),
    )  # fmt: skip
    in_a = Constraints(labels=(("zone", "a"),))
    seats = members(3, an_ask(mem=10), constraints=in_a, excluded=1 << 2)
    assert on(places(fleet, seats)) == {"zone-a": 3}
    short = missing(fleet, members(5, an_ask(mem=10), constraints=in_a, excluded=1 << 2))
    assert short.passed == ((2, "tainted or not selected"), (1, "refused by kube-scheduler"))


def test_members_with_fewer_nodes_choose_before_equals() -> None:
    fleet = a_fleet(a_state("a", 0, 40, labels={"zone": "a"}), a_state("b", 1, 40))
    gang = [
        *members(1, whole(), "free"),
        *members(1, whole(), "bound", constraints=Constraints(labels=(("zone", "a"),))),
    ]
    assert places(fleet, gang) == {"free0": "b", "bound0": "a"}


def test_members_that_may_go_anywhere_choose_last_among_equals() -> None:
    states = [a_state(f"n{i:02}", i, 40, labels={"name": f"n{i:02}"}) for i in range(21)]
    gang = [
        *members(1, whole(), "free"),
        *(members(1, whole(), f"m{i}", constraints=Constraints(labels=(("name", f"n{i:02}"),)))[0] for i in range(20)),
    ]
    assert places(a_fleet(*states), gang)["free0"] == "n20"


def test_members_with_more_exclusions_choose_first_among_equals() -> None:
    fleet = a_fleet(a_state("a", 0, 40), a_state("b", 1, 40))
    gang = [*members(1, whole(), "free"), *members(1, whole(), "bound", excluded=1 << 1)]
    assert places(fleet, gang) == {"free0": "b", "bound0": "a"}


def test_of_two_selections_the_narrower_is_tried_first_at_last() -> None:
    states = [a_state(name, i, 40, labels={"zone": "a", "name": name}) for i, name in enumerate("abc")]
    wide, narrow = Constraints(labels=(("zone", "a"),)), Constraints(labels=(("name", "a"),))
    gang = [*members(2, whole(), "free", constraints=wide), *members(1, whole(), "bound", constraints=narrow)]
    assert places(a_fleet(*states), gang)["bound0"] == "a"


def test_a_member_without_gpus_that_needs_much_is_not_shut_out_by_the_others() -> None:
    """Workers would fill node a, the fuller, and take of b what the parameter server needs."""
    fleet = a_fleet(a_state("a", 0, 40, 40, 40, cpu=32_000), a_state("b", 1, 40, 40, 40, 40, cpu=32_000))
    take(fleet, "a", "GPU-a-0", 40)
    gang = [
        *members(4, whole(), "worker", requests=needing(cpu=8000)),
        *members(1, None, "ps", requests=needing(cpu=30_000)),
    ]
    assert on(places(fleet, gang)) == {"a": 1, "b": 4}


# -- the smallest start


def test_the_smallest_start_has_the_required_the_roles_and_then_the_first() -> None:
    seats = [
        *(Seat(uid=f"w{i}", role="worker") for i in range(4)),
        *(Seat(uid=f"p{i}", role="ps") for i in range(3)),
        Seat(uid="launcher", role="launcher", required=True),
    ]
    assert [seat.uid for seat in least(seats, 5, (("ps", 2),))] == ["w0", "w1", "p0", "p1", "launcher"]
    assert [seat.uid for seat in least(seats, 2, (("ps", 2), ("worker", 1)))] == ["w0", "p0", "p1", "launcher"]
    assert [seat.uid for seat in least(seats, 2, (("launcher", 1),))] == ["w0", "launcher"]
    assert len(least(seats, 99)) == 8


def test_a_gang_that_does_not_fit_as_it_is_starts_with_its_minimum() -> None:
    fleet = a_fleet(a_state("a", 0, 40, 40, 40))
    seats = members(5, whole())
    assert sorted(places(fleet, seats, least(seats, 2))) == ["m0", "m1"]
    assert len(places(fleet, seats[:3], least(seats[:3], 2))) == 3


def test_what_is_missing_is_told_of_the_minimum() -> None:
    seats = members(9, whole())
    short = missing(a_fleet(a_state("a", 0, 40, 40)), seats, least(seats, 3))
    assert str(short) == "needs 3×1 whole GPU; 2 can be placed: a 2; short by 1"


# -- the sentence


def test_a_shortage_has_numbers_and_nodes() -> None:
    fleet = a_fleet(a_state("node-a", 0, 40, 40, 40, 40), a_state("node-b", 1, 40, 40))
    short = missing(fleet, members(8, an_ask(mem=40)))
    assert str(short) == "needs 8×40 GiB; 6 can be placed: node-a 4, node-b 2; short by 2"
    assert short.short == 2


def test_a_shortage_says_that_links_are_asked() -> None:
    assert str(missing(a_fleet(), members(2, whole(2, link="nvlink")))) == (
        "needs 2×2 whole GPUs on NVLink nodes; none can be placed; short by 2"
    )


def test_many_nodes_are_counted_rather_than_named() -> None:
    fleet = a_fleet(*(a_state(f"n{i}", i, 40) for i in range(9)))
    assert str(missing(fleet, members(10, whole()))) == (
        "needs 10×1 whole GPU; 9 can be placed: n0 1, n1 1, n2 1, n3 1, n4 1, and 4 more; short by 1"
    )


def test_with_several_shapes_it_is_said_which_are_missing() -> None:
    fleet = a_fleet(a_state("a", 0, 40, cpu=2000), a_state("b", 1, cpu=3000))
    two = PodAsk(containers=tuple(ContainerAsk(name=name, gpus=1, mem=10) for name in "xy"))
    gang = [
        *members(2, None, "ps", requests=needing(cpu=2500, memory=2**29)),
        *members(1, two, "two", requests=needing()),
        *members(3, an_ask(mem=10, slices=25), requests=needing()),
    ]
    assert str(missing(fleet, gang)) == (
        "needs 1×(10 GiB on one GPU + 10 GiB on one GPU), 3×10 GiB and 25 slices, 2×2.5 cpu and 512Mi memory; "
        "4 can be placed: a 3, b 1; short by 1×10 GiB and 25 slices, 1×2.5 cpu and 512Mi memory"
    )


def test_a_gang_that_lacks_only_cpu_is_told_so() -> None:
    fleet = a_fleet(a_state("a", 0, 40, 40, cpu=1000), a_state("b", 1, 40, cpu=0))
    assert str(missing(fleet, members(2, whole()))) == (
        "needs 2×1 whole GPU; 1 can be placed: a 1; short by 1; passed over: 2 short of cpu"
    )


@pytest.mark.parametrize("ps", [2000, 1000])
def test_of_two_ways_that_fail_the_one_that_places_more_is_told(ps: int) -> None:
    fleet = a_fleet(a_state("a", 0, 10, 10, 20, cpu=2000))
    gang = [
        *members(1, an_ask(2, mem=10), "worker", requests=needing(cpu=1000)),
        *members(1, an_ask(mem=15), "single", requests=needing(cpu=1000)),
        *members(1, None, "ps", requests=needing(cpu=ps)),
    ]
    assert missing(fleet, gang).placed == ((2, "a"),)
    assert missing(fleet, members(3, an_ask(2, mem=10), requests=needing())).placed == ((2, "a"),)


# -- in slices, while the cluster changes


def underway(fleet: ClusterView, seats: list[Seat], left: int = 1) -> Plan:
    """A plan that has this many steps left, as long as nothing changes."""
    steps, rehearsal = 1, Plan(fleet, seats, seats)
    while not rehearsal.advance(1):
        steps += 1
    plan = Plan(fleet, seats, seats)
    for _ in range(steps - left):
        assert not plan.advance(1)
    return plan


def test_a_large_plan_is_made_in_many_slices() -> None:
    fleet = a_fleet(*(a_state(f"n{i:02}", i, *[40] * 8) for i in range(70)))
    plan = Plan(fleet, seats := members(500, whole()), seats)
    slices = 1
    while not plan.advance():
        slices += 1
    assert slices > 20
    assert isinstance(plan.outcome, Placement)
    assert len(plan.outcome.assignments) == 500


@pytest.mark.parametrize("left", [1, 4, 7, 9])
def test_who_lost_its_gpu_while_the_plan_was_made_goes_elsewhere(left: int) -> None:
    fleet = a_fleet(*(a_state(f"n{i}", i, 40, 40) for i in range(5)))
    plan = underway(fleet, members(8, whole()), left)
    take(fleet, "n0", "GPU-n0-1", 5)
    while not plan.advance(1):
        pass
    assert isinstance(plan.outcome, Placement)
    taken = {uuid for assignment in plan.outcome.assignments.values() for uuid in assignment.charges}
    assert len(taken) == 8
    assert "GPU-n0-1" not in taken


@pytest.mark.parametrize("end", ["gone", "unseen", "new", "tainted", "problem"])
def test_nobody_stays_on_a_node_that_went_while_the_plan_was_made(end: str) -> None:
    states = {f"n{i}": a_state(f"n{i}", i, 40, 40) for i in range(4)}
    fleet = ClusterView(states, Indexes(states), OURS)
    plan = underway(fleet, members(6, whole()))
    if end == "gone":
        del states["n0"]
    elif end == "new":
        states["n0"] = a_state("n0", 9)
    elif end == "unseen":
        states["n0"].seen = False
    elif end == "problem":
        states["n0"].problem = "malformed"
    else:
        states["n0"].taints = (Taint(key="k", effect="NoExecute"),)
    if "n0" in states:
        states["n0"].version += 1
    fleet.indexes.stale("n0")
    while not plan.advance(1):
        pass
    assert isinstance(plan.outcome, Placement)
    assert on({uid: assignment.node for uid, assignment in plan.outcome.assignments.items()}) == {
        "n1": 2,
        "n2": 2,
        "n3": 2,
    }


def test_a_node_that_came_while_the_plan_was_made_takes_who_lost_its_place() -> None:
    states = {"a": a_state("a", 0, 40)}
    fleet = ClusterView(states, Indexes(states), OURS)
    plan = underway(fleet, members(1, whole()))
    take(fleet, "a", "GPU-a-0", 5)
    states["b"] = a_state("b", 1, 40)
    fleet.indexes.stale("b")
    while not plan.advance(1):
        pass
    assert isinstance(plan.outcome, Placement)
    assert plan.outcome.assignments["m0"].node == "b"


def test_a_plan_whose_room_went_meanwhile_ends_short() -> None:
    fleet = a_fleet(a_state("a", 0, 40, 40), a_state("b", 1, 40, 40))
    plan = underway(fleet, members(4, whole()))
    take(fleet, "a", "GPU-a-0", 5)
    while not plan.advance(1):
        pass
    assert str(plan.outcome) == "needs 4×1 whole GPU; 3 can be placed: b 2, a 1; short by 1"


def test_a_node_that_changed_but_still_has_room_keeps_its_members() -> None:
    fleet = a_fleet(a_state("a", 0, 40), a_state("b", 1, 40))
    plan = underway(fleet, members(4, an_ask(mem=10)))
    take(fleet, "a", "GPU-a-0", 0)
    while not plan.advance(1):
        pass
    assert isinstance(plan.outcome, Placement)
    assert {assignment.node for assignment in plan.outcome.assignments.values()} == {"a"}


def test_the_order_in_which_nodes_became_known_does_not_matter() -> None:
    seats = [*members(5, an_ask(mem=15)), *members(3, whole(), "w"), *members(3, None, "c")]

    def plan(*order: int) -> dict[str, str]:
        return places(a_fleet(*(a_state(f"n{i}", i, 40, 40) for i in order)), seats)

    assert plan(0, 1, 2, 3) == plan(3, 1, 0, 2)


def test_members_with_exclusions_of_their_own_are_all_placed() -> None:
    fleet = a_fleet(*(a_state(f"n{i}", i, 40) for i in range(12)))
    seats = [Seat(uid=f"m{i}", ask=whole(), requests=POD, excluded=1 << i | 1 << (i + 1) % 12) for i in range(12)]
    found = places(fleet, seats)
    assert len(set(found.values())) == 12
    assert all(found[f"m{i}"] not in (f"n{i}", f"n{(i + 1) % 12}") for i in range(12))
