"""Plans that keep the members of a gang close together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from extender.engine.planning.attempt import ClusterView
from extender.engine.planning.plan import Placement, Plan
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Seat
from protos.contract import names
from protos.contract.ask import Demand
from protos.contract.objects import Node
from tests.builders import a_node
from tests.unit.engine.fleets import POD, a_fleet, a_state, an_ask, members, outcome, places, whole
from tests.unit.engine.gang_story import GangStory, a_member
from tests.unit.engine.gang_story import members as a_gang

RACK, ZONE = "rack", "zone"


def a_site(*racks: tuple[str, str, Sequence[int]], levels: Sequence[str] = (RACK, ZONE)) -> ClusterView:
    """Racks of a zone; each node has so many of its two GPUs free. Names do not say where a node is."""
    states: list[NodeState] = []
    for rack, zone, nodes in racks:
        for free in nodes:
            labels = {key: value for key, value in ((RACK, rack), (ZONE, zone)) if value}
            state = a_state(f"n{len(states):02}", len(states), 40, 40, labels=labels)
            for gpu in range(2 - free):
                take(state, gpu)
            states.append(state)
    return msgspec.structs.replace(a_fleet(*states), localities=tuple(levels))


def take(state: NodeState, gpu: int) -> None:
    assert state.books is not None
    state.books.hold(f"{state.name}-{gpu}", whole(), {f"GPU-{state.name}-{gpu}": Demand(40, 100, True)})


def racks(fleet: ClusterView, seats: Sequence[Seat], beside: Sequence[str] = (), key: str = RACK) -> dict[str, int]:
    """Members by rack."""
    plan = Plan(fleet, seats, seats, beside=beside)
    while not plan.advance():
        pass
    assert isinstance(plan.outcome, Placement), str(plan.outcome)
    assignments = plan.outcome.assignments.values()
    assert len(assignments) == len(seats)
    return dict(sorted(Counter(fleet.nodes[assignment.node].labels.get(key, "") for assignment in assignments).items()))


def test_a_gang_goes_to_the_one_rack_that_holds_it() -> None:
    fleet = a_site(("a", "z", [1, 1]), ("b", "z", [2, 2]), ("c", "z", [1, 1]))
    assert racks(fleet, members(4, whole())) == {"b": 4}


def test_of_racks_that_hold_it_the_one_with_the_least_to_spare_is_taken() -> None:
    fleet = a_site(("a", "z", [2, 2, 2]), ("b", "z", [2, 2]), ("c", "z", [2, 2, 1]))
    assert racks(fleet, members(3, whole())) == {"b": 3}


def test_without_labels_of_that_kind_it_goes_anywhere() -> None:
    nowhere = a_site(("a", "z", [1]), ("b", "z", [2]), levels=["row"])
    assert racks(nowhere, members(2, whole())) == {"a": 1, "b": 1}


def test_a_gang_that_no_rack_holds_stays_in_one_zone_and_in_few_racks() -> None:
    fleet = a_site(
        ("a", "y", [2]), ("b", "y", [2]), ("c", "y", [2]), ("d", "z", [1]), ("e", "z", [2, 2]), ("f", "z", [2])
    )
    assert racks(fleet, members(6, whole())) == {"a": 2, "b": 2, "c": 2}
    assert racks(fleet, members(7, whole())) == {"d": 1, "e": 4, "f": 2}
    assert racks(a_site(("e", "z", [2, 2]), ("f", "z", [2]), ("g", "z", [1])), members(5, whole())) == {"e": 4, "g": 1}


def test_a_gang_that_no_zone_holds_is_placed_all_the_same() -> None:
    fleet = a_site(("a", "x", [1, 1]), ("b", "y", [2, 1]), ("c", "z", [1]))
    assert racks(fleet, members(5, whole()), key=ZONE) == {"x": 2, "y": 3}
    assert racks(fleet, members(6, whole()), key=ZONE) == {"x": 2, "y": 3, "z": 1}


def test_a_node_without_the_label_is_alone() -> None:
    fleet = a_site(("", "", [2, 2, 2]), ("b", "z", [2, 2]))
    assert racks(fleet, members(4, whole())) == {"b": 4}
    found = places(fleet, members(6, whole())).values()
    assert len({name for name in found if not fleet.nodes[name].labels}) == 1


def test_within_its_rack_a_gang_goes_to_half_used_nodes_first() -> None:
    fleet = a_site(("a", "z", [2, 1, 2, 1]), ("b", "z", [2]))
    found = places(fleet, members(2, whole()))
    assert set(found.values()) <= {"n04", "n01", "n03"}
    found = places(fleet, members(4, whole()))
    assert Counter(found.values()) == {"n01": 1, "n03": 1, "n00": 2}


def test_a_rack_with_gpus_enough_but_too_few_processors_holds_no_gang() -> None:
    fleet = a_site(("a", "z", [2, 2]), ("b", "z", [2, 2, 2]))
    for name in ("n00", "n01"):
        fleet.nodes[name].allocatable = {**fleet.nodes[name].allocatable, "cpu": 1000}
    assert racks(fleet, members(4, whole())) == {"b": 4}


def test_who_comes_later_goes_beside_the_others() -> None:
    fleet = a_site(("a", "z", [2]), ("b", "z", [2, 2]), ("c", "z", [0, 2, 2]))
    assert racks(fleet, members(2, whole())) == {"a": 2}
    assert racks(fleet, members(2, whole()), beside=["n03"]) == {"c": 2}
    assert set(racks(fleet, members(5, whole()), beside=["n03"])) == {"a", "c"}


def test_the_smallest_start_is_kept_together_where_the_whole_does_not_fit() -> None:
    fleet = a_site(("a", "z", [1, 1]), ("b", "z", [2, 1]))
    seats = members(9, whole())
    found = outcome(fleet, seats, seats[:3])
    assert isinstance(found, Placement)
    assert {fleet.nodes[assignment.node].labels[RACK] for assignment in found.assignments.values()} == {"b"}


def test_members_of_several_shapes_are_kept_together() -> None:
    fleet = a_site(("a", "z", [2, 1]), ("b", "z", [2, 2, 2]))
    gang = [*members(2, whole(2), "pair"), *members(2, an_ask(mem=10), "part"), *members(1, None, "launcher")]
    assert racks(fleet, gang) == {"b": 5}


def test_what_sums_promise_and_no_rack_keeps_is_looked_for_farther_away() -> None:
    """Each member takes both GPUs of a node, and either of its containers alone would fit twice."""
    fleet = a_site(("a", "z", [2, 2]), ("b", "z", [2, 2]))
    pod = an_ask(mem=30)
    other = msgspec.structs.replace(pod.containers[0], name="other")
    two = msgspec.structs.replace(pod, containers=(*pod.containers, other))
    assert racks(fleet, members(4, two)) == {"a": 2, "b": 2}
    site = a_site(("c", "y", [2] * 5), ("a", "z", [2, 2]), ("b", "z", [2, 2]))
    assert racks(site, members(4, two), key=ZONE) == {"z": 4}


def test_members_that_kube_scheduler_refuses_somewhere_are_kept_together() -> None:
    fleet = a_site(("a", "z", [2, 2]), ("b", "z", [2, 2, 2]))
    seats = [Seat(uid=f"m{i}", ask=whole(), requests=(*POD, (names.WHOLE_GPU, 1)), excluded=1 << i) for i in range(4)]
    assert len(racks(fleet, seats)) == 1


def test_the_same_site_gives_the_same_places_in_whatever_order_its_nodes_became_known() -> None:
    fleet = a_site(("a", "z", [1, 2, 1]), ("b", "z", [2, 2]), ("c", "z", [1, 1, 2]))
    turned = msgspec.structs.replace(a_fleet(*reversed(list(fleet.nodes.values()))), localities=fleet.localities)
    for count in range(1, 12):
        assert places(fleet, members(count, whole())) == places(turned, members(count, whole()))


# -- through the engine


def a_node_in(rack: str, name: str) -> Node:
    node = a_node(name, 16)
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels={RACK: rack}))


def rack_of(world: GangStory, *pods: str) -> set[str]:
    nodes = (world.engine.pods[world.pods[name].metadata.uid].node for name in pods)
    return {world.nodes[node].metadata.labels[RACK] for node in nodes}


def test_the_labels_of_the_settings_keep_a_gang_together() -> None:
    nodes = [a_node_in(rack, f"n{i}") for i, rack in enumerate("abcb")]
    world = GangStory(*nodes, locality_labels=(RACK,))
    world.start(*a_gang(2, mem=16))
    assert rack_of(world, "m0", "m1") == {"b"}
    elsewhere = GangStory(*nodes, locality_labels=())
    elsewhere.start(*a_gang(2, mem=16))
    assert rack_of(elsewhere, "m0", "m1") == {"a", "b"}


def test_members_that_start_late_go_beside_those_that_run() -> None:
    nodes = [a_node_in(rack, f"n{i}") for i, rack in enumerate("abcb")]
    world = GangStory(*nodes, locality_labels=(RACK,))
    world.create(a_member("m0", least=2, node="n3", phase="Running"))
    world.start(a_member("m1", least=2, mem=16))
    assert rack_of(world, "m0", "m1") == {"b"}


def test_who_joins_a_gang_that_runs_is_offered_nodes_near_it_and_others_only_where_those_are_full() -> None:
    world = GangStory(*(a_node_in(rack, f"n{i}") for i, rack in enumerate("abcbb")), locality_labels=(RACK,))
    world.start(*(a_member(f"m{i}", least=2, mem=16) for i in range(2)))
    assert rack_of(world, "m0", "m1") == {"b"}
    world.create(a_member("m2", least=2, mem=16), a_member("m3", least=2, mem=16))
    (beside,) = world.ask("m2").nodes
    assert world.nodes[beside].metadata.labels[RACK] == "b"
    world.bind("m2", beside)
    assert sorted(world.ask("m3").nodes) == ["n0", "n2"]
