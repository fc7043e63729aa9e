"""Preemption: a pending pod takes the room of pods of lower priority, and nothing more."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.engine.types.effects import Evict, Report
from extender.engine.types.events import BudgetGone, BudgetSeen, EvictionRefused, GroupSeen, Leading
from gangfilter.group import GroupKey
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.bounds import GRACE
from protos.contract.budget import Budget, Spec, Status
from protos.contract.objects import ObjectMeta, Pod
from protos.contract.selector import Selector
from tests.builders import a_container, a_node
from tests.unit.engine.gang_story import VOLCANO, a_declaration, at_wall, members
from tests.unit.engine.preemption_story import REFUSED, PreemptionStory, a_single, urgent


def a_gang(name: str, count: int, priority: int = 0, **fields: Any) -> list[Pod]:
    """So many whole GPUs."""
    made = members(count, gang=name, prefix=f"{name}-", mem=0, whole=1, **fields)
    return [urgent(pod, priority) for pod in made]


ELASTIC = {names.ELASTIC: "true"}


def a_budget(name: str, allowed: int, **labels: str) -> BudgetSeen:
    return BudgetSeen(Budget(ObjectMeta(name, "default"), Spec(Selector(labels)), Status(allowed)))


def full(**settings: Any) -> PreemptionStory:
    """Two gangs of two on four GPUs; `old` has run for a minute longer than `young`."""
    world = PreemptionStory(a_node("n1", 16, 16), a_node("n2", 16, 16), **settings)
    world.start(*a_gang("old", 2))
    world.later(60)
    world.start(*a_gang("young", 2))
    world.later(11)
    return world


# -- single pods


def test_room_that_comes_free_by_itself_is_told_as_that_and_not_as_a_ban() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    world.runs(a_single("ends", 12))
    world.runs(a_single("stays", 12))
    world.later(11)
    world.terminate("ends")
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == []
    told = [e for e in world.done if isinstance(e, Report) and e.pod.name == "urgent"]
    assert "PreemptionForbidden" not in [e.reason.code for e in told]
    (postponed,) = [e for e in told if e.reason.code == "PreemptionPostponed"]
    assert not postponed.warning
    assert str(postponed.reason) == ("default/urgent does not preempt for now: enough becomes free without preemption")


def test_a_pod_takes_the_room_of_the_one_of_lower_priority_that_lost_least() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    world.runs(a_single("old", 12))
    world.later(60)
    world.runs(a_single("young", 12))
    world.later(11)
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == ["young"]
    world.terminate("young")
    assert world.come("urgent") == ["NoRoom"]
    world.delete("young")
    assert ("urgent", "n1") in world.woken()
    assert world.come("urgent") == ["flying"]
    world.land()
    world.later(1)
    assert world.engine.counters["preemptions", "done"] == 1
    assert world.engine.counters["preemption_victims", "pod/priority"] == 1
    assert world.engine.counters["preemption_lost_gpu_seconds", ""] == pytest.approx(12 / 16 * 11, abs=1)
    assert set(world.evicted()) == {"young"}


def test_nobody_is_evicted_before_the_room_is_kept() -> None:
    world = PreemptionStory(a_node("n1", 16))
    world.runs(a_single("low", 12))
    world.later(11)
    world.waits(a_single("urgent", 10, 1000))
    world.later(3)
    assert world.evicted() == []
    assert world.annotate() == ["urgent"]
    assert world.evicted() == ["low"]


@pytest.mark.parametrize(
    ("low", "high", "never"),
    [(1000, 1000, False), (1001, 1000, False), (0, 1000, True)],
    ids=["equal", "less", "never"],
)
def test_nobody_of_equal_or_higher_priority_goes_nor_for_one_who_says_never(low: int, high: int, never: bool) -> None:
    world = PreemptionStory(a_node("n1", 16))
    world.runs(a_single("low", 12, low))
    world.later(11)
    pod = a_single("urgent", 10, high)
    world.waits(urgent(pod, high, preemption_policy="Never") if never else pod)
    assert world.preempt(60) == []


def test_work_since_a_checkpoint_is_what_is_lost() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    world.runs(a_single("old", 12))
    world.later(60)
    world.runs(a_single("young", 12))
    world.later(30)
    said = world.pods["old"].metadata.annotations | {names.CHECKPOINT: at_wall(world.now)}
    world.change("old", annotations=said)
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == ["old"]


def test_parts_on_several_gpus_that_suffice_in_sum_are_no_room() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    for number in range(2):
        world.runs(a_single(f"part-{number}", 10, annotations={names.PLACEMENT: "spread"}))
        world.later(11)
    world.waits(a_single("urgent", 12, 1000))
    assert world.preempt() == ["part-1"]


def test_a_pod_without_gpus_takes_cpu() -> None:
    world = PreemptionStory(a_node("n1", allocatable={"cpu": "4", "memory": "8Gi", "pods": "10"}))
    asked: dict[str, Any] = {"containers": [a_container("main", limits={"cpu": "3"})]}
    world.create(a_single("low", 0, **asked))
    world.come("low")
    world.land("low")
    world.later(11)
    world.create(a_single("urgent", 0, 1000, **asked))
    world.change("urgent", conditions=(REFUSED,))
    assert world.preempt() == ["low"]
    world.delete("low")
    assert ("urgent", "n1") in world.woken()


def test_room_that_comes_free_by_itself_is_waited_for() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    for name in ("going", "staying"):
        world.runs(a_single(name, 12))
    world.later(11)
    world.terminate("going")
    world.waits(a_single("urgent", 12, 1000))
    assert world.preempt(60) == []
    world.waits(a_single("other", 12, 900))
    assert world.preempt(60) == []
    world.waits(a_single("third", 12, 800))
    assert world.evicted() == []


def test_two_that_wait_take_two_rooms() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    for name in ("a", "b"):
        world.runs(a_single(name, 12))
    world.later(11)
    for name in ("one", "two"):
        world.waits(a_single(name, 12, 1000))
    world.later(1)
    assert sorted(world.annotate()) == ["one", "two"]
    assert sorted(world.evicted()) == ["a", "b"]


# -- gangs


def test_room_is_made_in_the_order_in_which_gangs_are_planned() -> None:
    world = full()
    world.create(*a_gang("long", 2, 1000))
    world.create(*a_gang("short", 2, 1000, annotations={names.EXPECTED_RUNTIME: "60"}))
    world.come("long-0", "long-1", "short-0", "short-1")
    world.later(1)
    assert world.annotate() == ["short-0", "short-1", "long-0", "long-1"]
    assert sorted(world.evicted()) == ["old-0", "old-1", "young-0", "young-1"]


def test_a_gang_takes_the_cheapest_whole_gang_and_nothing_more() -> None:
    world = full()
    world.create(*a_gang("high", 2, 1000))
    assert world.come("high-0", "high-1") == ["GangNoRoom", "GangNoRoom"]
    assert world.preempt() == ["young-0", "young-1"]
    assert world.phase("young") is Phase.UNDOING
    world.terminate("young-0", "young-1")
    assert world.phase("high") is Phase.WAITING
    world.again("young-0")
    assert world.come("young-0") != ["flying"], "nobody of it goes on by itself"
    world.again("young-1")
    assert world.phase("high") is Phase.STARTING
    assert world.come("high-0", "high-1") == ["held", "flying"]
    world.land()
    world.later(1)
    assert world.phase("high") is Phase.RUNNING
    assert world.phase("young") is Phase.WAITING
    assert world.phase("old") is Phase.RUNNING
    assert sorted(set(world.evicted())) == ["young-0", "young-1"]
    assert any("gang default/young" in told for told in world.reasons("high-0"))


def test_what_an_elastic_gang_can_spare_goes_before_a_pod_of_lower_priority() -> None:
    world = PreemptionStory(a_node("n1", 16, 16), a_node("n2", 16))
    elastic = a_gang("elastic", 2, 5, least=1, annotations=ELASTIC)
    world.start(*elastic)
    world.later(60)
    world.runs(a_single("single", 16))
    world.later(11)
    world.waits(a_single("urgent", 16, 1000))
    (gone,) = world.preempt()
    assert gone.startswith("elastic")
    assert world.phase("elastic") is Phase.RUNNING
    world.delete(gone)
    world.later(1)
    assert world.phase("elastic") is Phase.RUNNING
    assert world.come("urgent") == ["flying"]
    assert world.engine.counters["preemption_victims", "spare/priority"] == 1


def test_what_a_gang_can_spare_stays_at_equal_priority_unless_the_gang_says_that_it_is_elastic() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    world.start(*a_gang("rigid", 2, 5, least=1))
    world.later(11)
    world.waits(a_single("equal", 16, 5))
    assert world.preempt(60) == []
    world.change("rigid-0", annotations=world.pods["rigid-0"].metadata.annotations | ELASTIC)
    assert len(world.preempt()) == 1


def test_who_is_above_takes_one_member_that_a_gang_can_spare_and_not_the_whole_gang() -> None:
    world = PreemptionStory(a_node("n1", 16, 16, 16))
    world.start(*a_gang("rigid", 3, least=1))
    world.later(11)
    world.waits(a_single("urgent", 16, 1000))
    assert len(world.preempt()) == 1
    assert world.phase("rigid") is Phase.RUNNING


def test_what_a_gang_that_is_not_elastic_can_spare_goes_after_pods_of_lower_priority() -> None:
    world = PreemptionStory(a_node("n1", 16, 16), a_node("n2", 16))
    world.start(*a_gang("rigid", 2, 5, least=1))
    world.later(60)
    world.runs(a_single("single", 16))
    world.later(11)
    world.waits(a_single("urgent", 16, 1000))
    assert world.preempt() == ["single"]


@pytest.mark.parametrize("by", ["a pod", "its PodGroup", "the cluster"])
def test_what_an_elastic_gang_can_spare_goes_at_equal_priority_and_never_comes_back_by_evictions(by: str) -> None:
    world = PreemptionStory(a_node("n1", 16, 16), a_node("n2", 16, 16), elastic_gangs=by == "the cluster")
    if by == "its PodGroup":
        world.tell(GroupSeen(VOLCANO, GroupKey("default", "elastic"), a_declaration(elastic=True)))
    world.start(*a_gang("elastic", 4, least=2, annotations=ELASTIC if by == "a pod" else {}))
    world.later(11)
    world.create(*a_gang("gang", 1))
    world.come("gang-0")
    (gone,) = world.preempt()
    assert any("preempts surplus members of gangs" in told for told in world.reasons("gang-0"))
    world.again(gone)
    world.come("gang-0")
    world.land()
    world.waits(a_single("single", 16))
    (second,) = world.preempt()
    world.again(second)
    assert world.come("single") == ["flying"]
    world.land("single")
    world.waits(a_single("another", 16))
    before = len(world.done)
    assert world.preempt(60) == [], "the elastic gang has its minimum left, and takes nothing back"
    assert world.evicted(before) == []
    assert world.phase("elastic") is Phase.RUNNING


def test_half_a_gang_never_goes() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    world.start(*a_gang("pair", 2))
    world.later(11)
    world.waits(a_single("urgent", 16, 1000))
    assert world.preempt() == ["pair-0", "pair-1"]


def test_who_has_only_just_started_stays() -> None:
    world = PreemptionStory(a_node("n1", 16), min_runtime_s=100.0)
    world.runs(a_single("low", 12))
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt(90) == []
    assert world.preempt(70) == ["low"]


# -- budgets


def test_a_budget_that_forbids_it_is_named_and_others_go_instead() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    world.runs(a_single("old", 12))
    world.later(60)
    world.runs(a_single("young", 12, labels={"app": "web"}))
    world.later(11)
    world.tell(a_budget("web", 0, app="web"))
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == ["old"]


def test_budgets_are_summed_up_and_what_they_forbid_is_told_once() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    for name in ("a", "b"):
        world.runs(a_single(name, 12, labels={"app": "web"}))
    world.later(11)
    world.tell(a_budget("web", 1, app="web"))
    pod = a_single("urgent", 0, 1000, containers=[a_container("main", whole=2)])
    world.waits(pod)
    assert world.preempt(60) == []
    (told,) = [reason for reason in world.reasons("urgent") if "may not preempt" in reason]
    assert "PodDisruptionBudget default/web allows 0 more evictions" in told
    world.tell(BudgetGone("default", "web"))
    assert world.preempt(60) == ["a", "b"]


def test_what_goes_for_one_counts_in_the_budgets_of_what_goes_for_another() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    for name in ("a", "b"):
        world.runs(a_single(name, 12, labels={"app": "web"}))
    world.later(11)
    world.tell(a_budget("web", 1, app="web"))
    for name in ("one", "two"):
        world.waits(a_single(name, 12, 1000))
    assert len(world.preempt(5)) == 1
    (gone,) = set(world.evicted())
    world.tell(a_budget("web", 0, app="web"))
    world.terminate(gone)
    world.delete(gone)
    assert set(world.evicted()) == {gone}
    world.tell(a_budget("web", 1, app="web"))
    assert len(world.preempt(10)) == 1, "the budget allows one more by now"


def test_a_pod_under_two_budgets_never_goes() -> None:
    world = PreemptionStory(a_node("n1", 16))
    world.runs(a_single("low", 12, labels={"app": "web", "tier": "front"}))
    world.later(11)
    world.tell(a_budget("web", 1, app="web"), a_budget("front", 1, tier="front"))
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt(60) == []
    assert any("default/front and default/web: then no eviction passes" in told for told in world.reasons("urgent"))


def test_an_eviction_that_is_refused_ends_it_and_the_rest_of_the_gang_stays() -> None:
    world = full()
    world.create(*a_gang("high", 2, 1000))
    world.come("high-0", "high-1")
    assert world.preempt() == ["young-0", "young-1"]
    before = len(world.done)
    world.terminate("young-0")
    world.tell(EvictionRefused(world.pods["young-1"].metadata.uid, "a budget forbids it"))
    world.later(4)
    assert world.evicted(before) == []
    assert world.phase("young") is Phase.DEGRADED
    assert any("a budget forbids it" in told for told in world.reasons("high-0"))
    assert world.engine.counters["preemptions", "refused"] == 1
    assert sorted(world.annotate()) == ["high-0", "high-1"]
    assert not world.engine.reservations.claims(())


# -- a new process, another leader, and time


def test_a_new_process_goes_on_where_the_last_one_died_between_two_evictions() -> None:
    world = full()
    world.create(*a_gang("high", 2, 1000))
    world.come("high-0", "high-1")
    assert world.preempt() == ["young-0", "young-1"]
    world.delete("young-0")
    world.restart()
    world.come("high-0", "high-1")
    world.preempt(60)
    assert set(world.evicted()) == {"young-0", "young-1"}, "the same goes, and nobody else"
    world.delete("young-1")
    assert world.come("high-0", "high-1") == ["held", "flying"]
    assert world.phase("old") is Phase.RUNNING


def test_a_new_process_finds_the_victims_going_and_waits_for_them() -> None:
    world = full()
    world.create(*a_gang("high", 2, 1000))
    world.come("high-0", "high-1")
    assert world.preempt() == ["young-0", "young-1"]
    world.terminate("young-0", "young-1")
    before = len(world.done)
    world.restart()
    world.come("high-0", "high-1")
    world.later(20)
    assert world.evicted(before) == []
    world.delete("young-0", "young-1")
    assert world.come("high-0", "high-1") == ["held", "flying"]


def test_who_does_not_lead_evicts_nobody() -> None:
    world = full()
    world.tell(Leading(False))
    world.create(*a_gang("high", 2, 1000))
    world.come("high-0", "high-1")
    assert world.preempt(60) == []


def test_room_for_which_nobody_comes_is_free_again_in_the_end() -> None:
    world = PreemptionStory(a_node("n1", 16))
    low = a_single("low", 12)
    world.runs(urgent(low, 0, termination_grace_period_seconds=400))
    world.later(11)
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == ["low"]
    world.terminate("low")
    world.later(440)
    assert world.engine.reservations.claims(()), "kept for longer than the longest grace"
    world.later(60)
    assert not world.engine.reservations.claims(())
    assert world.engine.counters["preemptions", "lapsed"] == 1


@pytest.mark.parametrize(
    "grace", [10**9, 250_000_000_000, 10**17, 2**63 - 1, 10**400], ids=lambda s: f"{len(str(s))} digits"
)
def test_who_would_take_very_long_to_end_is_given_the_bound(grace: int) -> None:
    world = PreemptionStory(a_node("n1", 16))
    world.runs(urgent(a_single("low", 12), 0, termination_grace_period_seconds=grace))
    world.later(11)
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == ["low"]
    assert {e.grace_s for e in world.done if isinstance(e, Evict)} == {GRACE.most}
    world.terminate("low")
    world.later(GRACE.most + 40)
    assert world.engine.reservations.claims(()), "kept until its time is over"
    world.later(60)
    assert not world.engine.reservations.claims(())


def test_who_ends_in_time_is_given_what_it_says_itself() -> None:
    world = PreemptionStory(a_node("n1", 16))
    world.runs(urgent(a_single("low", 12), 0, termination_grace_period_seconds=GRACE.most))
    world.later(11)
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == ["low"]
    assert {e.grace_s for e in world.done if isinstance(e, Evict)} == {None}


def deleted_until(world: PreemptionStory, name: str, end: float) -> None:
    """Its owner has deleted the pod; its grace is over then."""
    pod = world.pods[name]
    metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=at_wall(end))
    world.pods[name] = msgspec.structs.replace(pod, metadata=metadata)
    world.show(name)


@pytest.mark.parametrize("end", [10**9, 10**12], ids=["in the year 2056", "past all years"])
def test_nobody_waits_for_one_that_was_deleted_and_takes_years_to_end(end: int) -> None:
    world = PreemptionStory(a_node("n1", 16))
    world.runs(a_single("low", 12))
    world.later(11)
    deleted_until(world, "low", min(end, 200_000_000_000))
    world.waits(a_single("urgent", 10, 1000))
    assert world.preempt() == ["low"]
    assert {e.grace_s for e in world.done if isinstance(e, Evict)} == {GRACE.most}
    deleted_until(world, "low", world.now + GRACE.most)
    assert world.preempt(60) == [], "it goes by now"
    world.delete("low")
    assert ("urgent", "n1") in world.woken()


def test_a_member_that_takes_years_to_end_is_taken_without_its_gang() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    world.start(*a_gang("old", 2))
    world.later(11)
    deleted_until(world, "old-1", 10**9)
    world.waits(urgent(a_single("urgent", 10, -1), -1))
    assert world.preempt(3) == [], "not for a lower priority"
    world.waits(a_single("more", 10, 1000))
    assert world.preempt() == ["old-1"]
    assert not world.gang("old").preempted


def test_who_does_not_come_for_the_room_evicts_nobody_for_a_while() -> None:
    world = PreemptionStory(a_node("n1", 16, 16))
    for name in ("a", "b"):
        world.runs(a_single(name, 12))
    world.later(11)
    world.waits(a_single("urgent", 10, 1000))
    (gone,) = world.preempt()
    world.delete(gone)
    world.preempt(100)
    assert world.engine.counters["preemptions", "lapsed"] == 1
    world.runs(a_single("next", 12))
    assert world.preempt(250) == [], "kube-scheduler did not place it, for whatever reason"
    assert world.preempt(120) != []


def test_it_can_be_turned_off() -> None:
    for off in ({"preemption": False}, {"reservation_ttl_s": 0.0}):
        world = PreemptionStory(a_node("n1", 16), **off)
        world.runs(a_single("low", 12))
        world.later(11)
        world.waits(a_single("urgent", 10, 1000))
        assert world.preempt(60) == []


def test_in_tree_preemption_is_never_told_to_break_a_gang() -> None:
    world = full()
    victims = {"n1": [world.pods["old-0"].metadata.uid], "n2": []}
    assert world.engine.preempt(a_single("urgent", 16, 1000), victims) == {}
    free = msgspec.structs.replace(a_single("urgent", 0, 1000))
    assert world.engine.preempt(free, victims) == {"n2": []}
