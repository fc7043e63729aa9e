"""An MPIJob whose launcher is made only when its workers run (MPI Operator's WaitForWorkersReady)."""

from __future__ import annotations

from extender.engine.types.events import GroupSeen
from gangfilter.group import Declaration, GroupKey
from gangfilter.minimum import lacking
from gangfilter.table import Phase
from protos.contract.objects import Pod
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import GangStory

KIND = "scheduling.x-k8s.io/v1alpha1"


def a_job_of_two_workers(minimum: int) -> GangStory:
    """The PodGroup and the pods that MPI Operator makes."""
    world = GangStory(a_node("n1", 16, 16))
    declared = Declaration(source=f"PodGroup {KIND}", min_member=minimum)
    world.tell(GroupSeen(KIND, GroupKey("default", "mpi"), declared))
    world.create(a_part("worker", "0", whole=1), a_part("worker", "1", whole=1))
    return world


def a_part(role: str, index: str, whole: int = 0) -> Pod:
    labels = {
        "scheduling.x-k8s.io/pod-group": "mpi", "training.kubeflow.org/job-name": "mpi",
        "training.kubeflow.org/job-role": role, "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/replica-index": index,
    }  # fmt: skip
    return a_pod(f"mpi-{role}-{index}", whole=whole, labels=labels)


def test_counted_in_the_minimum_it_is_waited_for_and_the_sentence_says_what_to_do() -> None:
    world = a_job_of_two_workers(minimum=3)
    assert world.come("mpi-worker-0") == ["GangAssembling"]
    assert (world.phase("mpi"), world.booked()) == (Phase.ASSEMBLING, [])
    assert lacking(world.gang("mpi")) == (
        "2 of 3 members exist; the launcher does not: one that is made when the others run must not be in the minimum"
    )
    world.later(1.5)
    assert ("mpi-worker-0", "GangAssembling") in world.told()


def test_without_it_in_the_minimum_the_workers_start_and_it_is_placed_when_it_comes() -> None:
    world = a_job_of_two_workers(minimum=2)
    assert world.come("mpi-worker-0", "mpi-worker-1") == ["held", "flying"]
    world.land()
    assert world.phase("mpi") is Phase.RUNNING
    world.create(a_part("launcher", "0"))
    assert world.come("mpi-launcher-0") == ["flying"]
    world.land()
    assert (world.phase("mpi"), world.evicted()) == (Phase.RUNNING, [])


def test_a_launcher_that_comes_with_its_workers_is_no_matter_for_a_sentence() -> None:
    world = a_job_of_two_workers(minimum=4)
    assert lacking(world.gang("mpi")) == "2 of 4 members exist"
    world.create(a_part("launcher", "0"))
    assert lacking(world.gang("mpi")) == "3 of 4 members exist"
