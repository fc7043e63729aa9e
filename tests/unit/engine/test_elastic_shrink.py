"""Elastic jobs give room: their operator is asked to remove workers before pods are evicted."""

from __future__ import annotations

import pytest

from extender.engine.types.effects import Scale
from extender.engine.types.events import BudgetSeen, Leading, ScalerGone, ScalersServed
from gangfilter.table import Phase
from protos.contract.budget import Budget, Spec, Status
from protos.contract.objects import ObjectMeta
from protos.contract.selector import Selector
from protos.contract.training import GROUP, Scaler
from tests.builders import a_node, a_pod
from tests.unit.engine.elastic_story import KEY, ElasticStory
from tests.unit.engine.gang_story import members
from tests.unit.engine.preemption_story import PreemptionStory, urgent


def full(**fields: int) -> ElasticStory:
    """A job of four workers on two nodes of two GPUs."""
    world = ElasticStory(a_node("n1", 16, 16), a_node("n2", 16, 16), **fields)
    world.run_job()
    return world


def one(scalers: list[Scaler]) -> Scaler:
    (scaler,) = scalers
    return scaler


def test_workers_beyond_the_minimum_are_asked_for_and_nobody_is_evicted() -> None:
    world = full()
    world.presses()
    assert world.preempt(3) == []
    asked = one(world.asked())
    assert (asked.kind, asked.job, len(asked.pods)) == ("ScaleIn", "job", 1)
    assert ("job-worker-3", "ScalingIn") in world.told()
    (gone,) = asked.pods
    world.terminate(gone)
    world.delete(gone)
    world.finish(asked)
    assert world.come("urgent") == ["flying"]
    world.land()
    world.later(1)
    assert world.evicted() == []
    assert world.phase("job") is Phase.RUNNING
    assert world.engine.counters["preemptions", "done"] == 1
    assert world.engine.counters["preemption_lost_gpu_seconds", ""] == 0
    assert {k: n for (what, k), n in world.engine.counters.items() if what == "scale_ins"} == {"created": 1, "done": 1}


def test_one_of_equal_priority_gets_what_a_job_can_spare_and_nothing_else() -> None:
    world = full()
    for name in ("first", "second", "third"):
        world.waits(a_pod(name, whole=1))
    assert world.preempt(3) == []
    asked = one(world.asked())
    assert len(asked.pods) == 1, "one scaler at a time"
    world.terminate(*asked.pods)
    world.delete(*asked.pods)
    world.finish(asked)
    world.schedule()
    assert world.preempt(3) == []
    again = one(world.asked())
    world.terminate(*again.pods)
    world.delete(*again.pods)
    world.finish(again)
    world.schedule()
    assert world.preempt(60) == []
    assert world.asked() == []
    assert world.phase("job") is Phase.RUNNING


def test_what_the_operator_does_not_let_go_in_time_is_evicted() -> None:
    world = full(scale_in_timeout_s=60)
    world.presses(2)
    assert world.preempt(50) == []
    asked = one(world.asked())
    assert world.preempt(20) == sorted(asked.pods)
    assert world.engine.counters["scale_ins", "overdue"] == 1


def test_a_budget_that_forbids_it_by_then_keeps_them() -> None:
    world = full(scale_in_timeout_s=60)
    for i in range(4):
        world.change(f"job-worker-{i}", phase="Running")
    world.presses()
    assert world.preempt(30) == []
    world.tell(BudgetSeen(Budget(ObjectMeta("jobs", "default"), Spec(Selector({"group-name": GROUP})), Status(0))))
    assert world.preempt(40) == []
    assert any("PodDisruptionBudget default/jobs allows 0" in told for told in world.reasons("urgent"))
    assert world.engine.counters["preemptions", "refused"] == 1


def test_workers_have_no_less_time_than_their_grace() -> None:
    world = full(scale_in_timeout_s=1)
    world.presses()
    assert world.preempt(28) == []
    assert len(world.preempt(5)) == 1


def test_a_job_goes_as_a_whole_rather_than_below_its_minimum() -> None:
    world = full(least=3)
    assert len(world.engine.elastic.spared(world.gang("job"))) == 1
    world.presses(2)
    assert len(world.preempt(10)) == 5
    assert world.asked() == []


def test_a_job_that_shrank_runs_whole_and_can_spare_nobody_else() -> None:
    world = full()
    for name in ("job-worker-2", "job-worker-3"):
        world.terminate(name)
        world.delete(name)
    assert world.phase("job") is Phase.RUNNING
    assert world.engine.elastic.spared(world.gang("job")) == []
    world.restart()
    assert world.phase("job") is Phase.RUNNING


def test_the_launcher_is_never_spared() -> None:
    world = full()
    spared = world.engine.elastic.spared(world.gang("job"))
    assert len(spared) == 2
    assert {member.role for member in spared} == {"worker"}


def test_while_another_scaler_is_unfinished_none_is_made() -> None:
    world = full()
    world.scalers["grow"] = Scaler(kind="ScaleOut", namespace="default", name="grow", job="job", count=1)
    world.declare()
    world.presses()
    world.preempt(5)
    assert world.asked() == []
    world.finish(world.scalers["grow"], "failed")
    world.later(1)
    assert one(world.asked()).kind == "ScaleIn"


def test_a_job_that_lost_workers_meanwhile_is_not_asked_to_go_below_its_minimum() -> None:
    world = full(scale_in_timeout_s=60)
    world.scalers["grow"] = Scaler(kind="ScaleOut", namespace="default", name="grow", job="job", count=1)
    world.declare()
    world.presses(2)
    world.preempt(5)
    for name in ("job-worker-0", "job-worker-1"):  # the others were to go
        world.terminate(name)
        world.delete(name)
    world.finish(world.scalers["grow"], "failed")
    world.preempt(2)
    assert world.asked() == []
    assert world.engine.counters["preemptions", "changed"] == 1
    gone = world.preempt(80)
    assert len(gone) in (0, 3), "nobody, or the whole job"


@pytest.mark.parametrize("deleted", [False, True])
def test_after_one_that_failed_or_was_deleted_another_is_made_only_after_a_while(deleted: bool) -> None:
    world = full(scale_in_timeout_s=60)
    world.presses()
    world.preempt(3)
    asked = one(world.asked())
    if deleted:
        del world.scalers[asked.name]
        world.tell(ScalerGone("ScaleIn", "default", asked.name))
    else:
        world.finish(asked, "failed")
    world.preempt(25)
    assert world.asked() == []
    world.preempt(10)
    assert one(world.asked()).pods == asked.pods


def test_workers_that_somebody_else_scales_in_count_as_spared_already() -> None:
    world = full()
    by_user = Scaler(kind="ScaleIn", namespace="default", name="mine", job="job", pods=("job-worker-0",), count=1)
    world.scalers["mine"] = by_user
    world.declare()
    spared = [member.name for member in world.engine.elastic.spared(world.gang("job"))]
    assert spared[0] == "job-worker-0"
    assert len(spared) == 2
    world.scalers["mine"] = Scaler(kind="ScaleIn", namespace="default", name="mine", job="job", count=2)
    world.declare()
    assert world.engine.elastic.spared(world.gang("job")) == []


def test_one_that_is_not_seen_is_asked_for_again_by_the_same_name() -> None:
    world = full()
    world.presses()
    world.preempt(20)
    before = len(world.done)
    world.preempt(6)
    again = {effect.scaler.name for effect in world.done[before:] if isinstance(effect, Scale)}
    assert again == {one(world.asked()).name}


def test_whoever_starts_anew_goes_on_with_the_scaler_that_exists() -> None:
    world = full(scale_in_timeout_s=60)
    world.presses()
    world.preempt(5)
    asked = one(world.asked())
    world.restart()
    assert world.preempt(45) == []
    assert world.asked() == []
    assert world.preempt(20) == list(asked.pods)


def test_where_no_scaler_can_be_made_surplus_is_evicted() -> None:
    world = full()
    world.tell(ScalersServed("ScaleIn", yes=False))
    world.presses()
    assert len(world.preempt(3)) == 1
    assert world.asked() == []


def test_a_job_is_not_asked_where_the_setting_says_so() -> None:
    world = full(scale_in_timeout_s=0)
    world.presses()
    assert len(world.preempt(3)) == 1


def test_what_this_process_asked_for_is_forgotten_when_another_leads() -> None:
    world = full()
    world.presses()
    world.preempt(3)
    world.tell(Leading(yes=False))
    assert world.engine.elastic.scalers.unfinished(KEY) == []


def test_finished_scalers_of_ours_are_taken_away_after_a_while() -> None:
    world = full()
    world.presses()
    world.preempt(3)
    asked = one(world.asked())
    world.finish(asked, "failed")
    world.later(500)
    assert world.untold() == []
    world.later(200)
    assert set(world.untold()) == {asked.name}


def test_a_plain_gang_shrinks_by_evictions_and_the_worst_placed_goes_first() -> None:
    world = PreemptionStory(a_node("n1", 16, 16), a_node("n2", 16, 16, 16))
    world.start(*members(5, gang="plain", prefix="p", least=2, mem=0, whole=1))
    world.later(11)
    world.waits(urgent(members(1, gang="u", prefix="u", mem=0, whole=1)[0], 1000))
    (gone,) = world.preempt(5)
    assert world.engine.pods[f"uid-{gone}"].node == "n1"
