"""Gangs that declare how much must be free before they start: minResources."""

from __future__ import annotations

import msgspec
import pytest

from extender.engine.planning.plan import Placement, Plan
from extender.engine.planning.shortage import Scarcity
from extender.engine.state.intree import Amounts
from extender.engine.types.events import GroupSeen, NodeSeen
from gangfilter.group import Declaration, GroupKey
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.ask import Demand
from tests.builders import a_node, a_pod
from tests.unit.engine.fleets import a_fleet, a_state, members, whole
from tests.unit.engine.gang_story import GangStory, a_member
from tests.unit.engine.gang_story import members as pods

KIND = "scheduling.volcano.sh/v1beta1"


def declared(least: int, *amounts: tuple[str, int]) -> GroupSeen:
    says = Declaration(source=f"PodGroup {KIND}", min_member=least, min_resources=amounts)
    return GroupSeen(KIND, GroupKey("default", "g"), says)


def planned(wanted: Amounts, *, minimum: int = 2) -> Placement | Scarcity:
    """Two whole GPUs on four, of which one is shared by another pod and one is taken."""
    fleet = a_fleet(a_state("a", 0, 40, 40), a_state("b", 1, 40, 40))
    books = fleet.nodes["a"].books
    assert books is not None
    books.hold("sharer", whole(), {"GPU-a-0": Demand(10, 30, False)})
    books.hold("owner", whole(), {"GPU-a-1": Demand(40, 100, True)})
    seats = members(2, whole())
    plan = Plan(fleet, seats, seats[:minimum], wanted)
    while not plan.advance():
        pass
    assert isinstance(plan.outcome, Placement | Scarcity)
    return plan.outcome


@pytest.mark.parametrize(
    ("resource", "free"),
    [
        (names.WHOLE_GPU, 2),
        (names.GPU_MEM, 30 + 80),
        (names.GPU_SLICE, 70 + 200),
        (names.SHARED_GPU, 0),
        ("cpu", 128_000),
        ("rdma/hca", 0),
    ],
)
def test_as_much_as_is_free_of_all_nodes_may_be_wanted_and_no_more(resource: str, free: int) -> None:
    assert planned(((resource, free + 1),)) == Scarcity(((resource, free + 1),), ((resource, free),))
    assert isinstance(planned(((resource, free),)), Placement)


def test_what_the_members_themselves_take_needs_no_sum() -> None:
    assert isinstance(planned(((names.WHOLE_GPU, 2), ("cpu", 2000))), Placement)


def test_replicas_of_gpus_are_counted_as_such() -> None:
    fleet = a_fleet(a_state("a", 0, 40, 40, replicas={names.WHOLE_GPU: 4}))
    books = fleet.nodes["a"].books
    assert books is not None
    books.hold("other", whole(), {"GPU-a-0": Demand(20, 50, False)})
    plan = Plan(fleet, [], [], ((names.WHOLE_GPU, 7),))
    while not plan.advance():
        pass
    assert plan.outcome == Scarcity(((names.WHOLE_GPU, 7),), ((names.WHOLE_GPU, 6),))


def test_nodes_that_take_no_pods_count_for_nothing() -> None:
    cordoned, strange, gone = a_state("a"), a_state("b", 1), a_state("c", 2)
    cordoned.unschedulable, strange.problem, gone.seen = True, "another unit", False
    leaving = a_state("d", 3, 40)
    assert leaving.books is not None
    leaving.books.set_inventory(msgspec.structs.replace(leaving.books.inventory, state="leaving"))
    for wanted in (("cpu", 65_000), (names.WHOLE_GPU, 1)):
        plan = Plan(a_fleet(cordoned, strange, gone, leaving), [], [], (wanted,))
        while not plan.advance():
            pass
        assert isinstance(plan.outcome, Scarcity)


def test_the_sentence_has_the_numbers() -> None:
    scarcity = Scarcity((("cpu", 40_000), (names.WHOLE_GPU, 8)), (("cpu", 31_500), (names.WHOLE_GPU, 6)))
    assert str(scarcity) == "minResources wants 40 cpu and 8 nvidia.com/gpu; free are 31.5 cpu and 6 nvidia.com/gpu"


def test_a_gang_waits_until_so_much_is_free_though_it_would_fit_and_says_so() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.tell(declared(2, ("cpu", 70_000)))
    world.create(*pods(2, least=None, mem=8))
    assert world.come("m0") == ["GangNoRoom"]
    assert (world.phase(), world.booked()) == (Phase.WAITING, [])
    reason = world.known().reason
    assert reason is not None
    assert reason.numbers == "minResources wants 70 cpu; free are 64 cpu"
    world.nodes["n2"] = a_node("n2")
    world.tell(NodeSeen(world.nodes["n2"]))
    world.later(1)
    assert world.phase() is Phase.STARTING
    assert world.come("m0", "m1") == ["held", "flying"]


def test_a_gang_of_which_more_is_wanted_than_there_is_does_not_hold_up_others() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.tell(declared(2, (names.WHOLE_GPU, 100)))
    world.create(*pods(2, least=None, mem=8))
    world.create(*pods(2, gang="h", prefix="h", mem=8))
    assert world.phase("h") is Phase.STARTING
    world.create(a_pod("single", mem=8))
    assert world.come("single") == ["flying"]


def test_a_gang_of_which_a_part_has_done_its_work_needs_no_more_than_the_rest() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.tell(declared(2, ("cpu", 64_000)))
    world.create(*pods(2, least=None, mem=8))
    world.come("m0", "m1")
    world.land()
    world.change("m0", phase="Succeeded")
    world.delete("m1")
    world.create(a_pod("other", containers=[{"name": "main", "resources": {"requests": {"cpu": "1"}}}], node="n1"))
    world.create(a_member("m2", least=None, mem=8))
    assert world.come("m2") == ["flying"]


def test_the_amount_may_be_lowered_while_the_gang_waits() -> None:
    world = GangStory(a_node("n1", 16, 16))
    world.tell(declared(2, ("cpu", 70_000)))
    world.create(*pods(2, least=None, mem=8))
    assert world.phase() is Phase.WAITING
    world.tell(declared(2, ("cpu", 60_000)))
    world.run_slice()
    assert world.phase() is Phase.STARTING
