"""Elastic jobs get more workers if GPUs are idle and no pending pod could use them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from extender.engine.policies.elastic import growth
from extender.engine.state.seats import Seat
from extender.engine.types.events import GroupSeen, QueueSeen
from gangfilter.table import Phase
from protos.contract.bounds import MEMBERS
from protos.contract.queue import GPU, GPUS, Queue
from protos.contract.training import Scaler, decode_job
from tests.builders import a_node, a_pod
from tests.unit.engine.elastic_story import KEY, ElasticStory, a_worker
from tests.unit.engine.preemption_story import urgent


def roomy(*, gpus: int = 8, **fields: Any) -> ElasticStory:
    """A job of four workers where there are more GPUs, on nodes of four."""
    nodes = [a_node(f"n{i}", *[16] * 4) for i in range(gpus // 4)]
    world = ElasticStory(*nodes, **fields)
    world.run_job()
    return world


def grown(world: ElasticStory, seconds: float = 90) -> Scaler:
    """The one ScaleOut that is made in this time."""
    world.later(seconds)
    (scaler,) = world.asked()
    assert scaler.kind == "ScaleOut"
    return scaler


def comes(world: ElasticStory, scaler: Scaler) -> list[str]:
    """The operator makes its workers, and they run; their nodes."""
    first = max(int(name.rpartition("-")[2]) for name in world.pods if "worker" in name) + 1
    made = [a_worker(first + i) for i in range(scaler.count)]
    world.create(*made)
    assert world.come(*(pod.metadata.name for pod in made)) == ["flying"] * len(made)
    nodes = [world.flying[pod.metadata.name].node for pod in made]
    world.land()
    world.finish(scaler)
    return nodes


def test_a_job_grows_to_its_maximum_when_gpus_were_idle_for_a_while() -> None:
    world = roomy()
    world.later(40)
    assert world.asked() == []
    scaler = grown(world, 40)
    assert scaler.count == 2
    nodes = [slot.assignment.node for slot in world.known("job").replacements]
    assert comes(world, scaler) == nodes
    assert world.known("job").replacements == []
    world.later(300)
    assert world.asked() == []
    counts = world.engine.counters
    assert (counts["scale_outs", "created"], counts["scale_outs", "done"]) == (1, 1)


def test_it_grows_by_as_many_as_there_is_room_for() -> None:
    world = roomy(most=9)
    world.runs(a_pod("single", whole=1))
    assert grown(world).count == 2


@pytest.mark.parametrize("fields", [{"most": 4}, {"scale_out_delay_s": 0.0}, {"gpus": 4}])
def test_it_stays_as_it_is_at_its_maximum_without_room_and_where_told_so(fields: dict[str, Any]) -> None:
    world = roomy(**fields)
    world.later(300)
    assert world.asked() == []


def test_it_stays_as_it_is_while_somebody_waits_who_could_use_the_room() -> None:
    world = roomy()
    world.waits(a_pod("large", whole=5))
    world.later(300)
    assert world.asked() == []
    world.delete("large")
    world.later(50)
    assert world.asked() == []
    assert grown(world, 40).count == 2


def test_who_waits_for_other_gpus_is_in_nobodys_way() -> None:
    world = roomy()
    world.waits(a_pod("other", whole=1, annotations={"gangshare.io/gpu-model": "H100*"}))
    assert grown(world).count == 2


def test_its_queue_says_how_many_it_may_have() -> None:
    world = roomy()
    world.tell(QueueSeen(Queue(name="default", capability={GPUS: 5 * GPU})))
    assert grown(world).count == 1


def test_after_a_scaler_has_ended_time_must_pass_and_longer_after_failures() -> None:
    world = roomy()
    world.finish(grown(world), "failed")
    world.later(1)
    assert world.known("job").replacements == []
    world.later(100)
    assert world.asked() == []
    world.finish(grown(world, 120), "failed")
    world.later(230)
    assert world.asked() == []
    assert grown(world, 120).count == 2


def test_it_grows_only_while_its_operator_says_that_it_runs() -> None:
    world = roomy()
    world.declare(running=False)
    world.later(300)
    assert world.asked() == []


def test_room_is_kept_until_the_scaleout_can_be_over() -> None:
    world = roomy()
    grown(world)
    world.waits(a_pod("late", whole=2))
    assert len(world.known("job").replacements) == 2
    world.later(400)
    assert world.known("job").replacements == []


def test_whoever_starts_anew_keeps_room_for_what_is_still_to_come() -> None:
    world = roomy()
    scaler = grown(world)
    world.restart()
    world.later(30)
    assert world.asked() == []
    assert len(world.known("job").replacements) == 2
    comes(world, scaler)
    assert world.known("job").replacements == []


def test_one_that_was_not_seen_is_forgotten_after_a_minute() -> None:
    world = roomy()
    world.later(90)
    assert len(world.known("job").replacements) == 2
    world.later(70)
    assert world.known("job").replacements == []
    assert world.engine.elastic.scalers.unfinished(world.gang("job").key) == []


def test_a_job_shrinks_and_grows_back_when_the_room_is_free_again() -> None:
    world = roomy(gpus=4, most=4)
    world.presses()
    world.preempt(3)
    (shrunk,) = world.asked()
    world.terminate(*shrunk.pods)
    world.delete(*shrunk.pods)
    world.finish(shrunk)
    assert world.come("urgent") == ["flying"]
    world.land()
    world.later(200)
    assert world.asked() == []
    world.delete("urgent")
    back = grown(world, 140)
    assert back.count == 1
    comes(world, back)
    assert world.phase("job") is Phase.RUNNING
    assert world.evicted() == []


def test_the_job_with_least_beyond_its_minimum_grows_first() -> None:
    world = roomy(gpus=12, most=8)
    world.waits(a_pod("large", whole=5))
    (first, *_) = world.groups
    assert isinstance(first, GroupSeen)
    assert first.job is not None
    key = msgspec.structs.replace(first.key, name="small")
    job = msgspec.structs.replace(first.job, name="small", uid="uid-small", least=3)
    declared = msgspec.structs.replace(
        first.declaration, min_by_role=(("worker", 3),), lasting_by_role=(("worker", 3),)
    )
    world.tell(GroupSeen(first.kind, key, declared, job))
    pods = [a_worker(i) for i in range(3)]
    for i, pod in enumerate(pods):
        labels = pod.metadata.labels | {"training-job-name": "small"}
        meta = msgspec.structs.replace(pod.metadata, name=f"small-worker-{i}", uid=f"uid-small-{i}", labels=labels)
        pods[i] = urgent(msgspec.structs.replace(pod, metadata=meta), 0)
    world.start(*pods)
    world.later(20)
    world.delete("large")
    world.later(90)
    (first_asked, *_) = world.asked()
    assert first_asked.job == "small"


def test_no_more_seats_are_drawn_than_may_start_together(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    class Counted(Seat, frozen=True):
        def __post_init__(self) -> None:
            drawn.append(self.uid)

    world = roomy(most=3_000_000, max_gang_size=100)
    monkeypatch.setattr(growth, "Seat", Counted)
    assert grown(world).count == 3, "100 or its halves"
    assert max(Counter(drawn).values()) <= 10, "looks"
    assert len(set(drawn) - {"uid-job-worker-0"}) == 100, "beside the worker that they are like"


def test_what_a_job_says_of_its_workers_is_held_against_the_bound() -> None:
    worker = {"replicas": 2**63, "minReplicas": -5, "maxReplicas": 10**400}
    raw = msgspec.json.encode({"metadata": {"name": "job"}, "spec": {"etReplicaSpecs": {"worker": {}}}})
    raw = raw.replace(b"{}", ("{" + ",".join(f'"{key}":{value}' for key, value in worker.items()) + "}").encode())
    job = decode_job(raw)
    assert (job.least, job.most) == (0, MEMBERS.most)


@pytest.mark.parametrize("failures", [16, 2000])
def test_many_scaleouts_that_failed_let_a_job_rest_for_an_hour(failures: int) -> None:
    world = roomy()
    world.engine.elastic.scalers.failures[KEY] = failures
    world.engine.elastic.scalers.ended[KEY] = world.now
    world.later(600)
    assert world.asked() == []
    world.later(3600)
    assert [scaler.kind for scaler in world.asked()] == ["ScaleOut"]
