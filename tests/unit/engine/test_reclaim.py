"""Reclaim: a queue takes back its fair share from queues that have more than theirs, and nothing more."""

from __future__ import annotations

from typing import Any

from extender.engine.types.effects import Evict
from gangfilter.table import Phase
from protos.contract import codec, names, reservation
from protos.contract.objects import Pod
from protos.contract.queue import GPU, GPUS
from protos.contract.reservation import Reservation, Room
from tests.builders import a_container, a_node, a_pod
from tests.unit.engine.gang_story import members
from tests.unit.engine.preemption_story import WRITTEN, PreemptionStory, urgent
from tests.unit.engine.test_queues import a_queue, in_queue


def gpus(count: float) -> dict[str, int]:
    return {GPUS: int(count * GPU)}


def a_gang(name: str, count: int, queue: str, priority: int = 0, **fields: Any) -> list[Pod]:
    """So many whole GPUs."""
    made = members(count, gang=name, prefix=f"{name}-", mem=0, whole=1, annotations=in_queue(queue), **fields)
    return [urgent(pod, priority) for pod in made]


def borrowed(*queues: Any, jobs: int = 4) -> PreemptionStory:
    """Eight GPUs, all of them with gangs of two of queue `a`: the first has run the longest."""
    world = PreemptionStory(a_node("n1", *[16] * 4), a_node("n2", *[16] * 4))
    world.tell(*queues)
    for i in range(jobs):
        world.start(*a_gang(f"old{i}", 2, "a"))
        world.later(5)
    world.later(12)
    return world


def wants(world: PreemptionStory, pods: list[Pod], seconds: float = 6.0) -> list[str]:
    """These are created, and wait; returns the evicted gangs and pods."""
    world.create(*pods)
    return sorted({name.rpartition("-")[0] for name in world.preempt(seconds)})


def why(world: PreemptionStory, name: str) -> str:
    return next(str(e.reason) for e in world.done if isinstance(e, Evict) and e.pod.name == name)


HALVES = a_queue("a"), a_queue("b")


def test_a_queue_takes_back_what_is_due_to_it_from_whom_has_lost_least_and_no_more() -> None:
    world = borrowed(*HALVES)
    assert wants(world, a_gang("mine", 4, "b")) == ["old2", "old3"]
    assert why(world, "old3-0") == (
        "gang default/mine reclaims the fair share of its queue:"
        " gang default/old3 is evicted; queue a has 8 GPUs, 4 GPUs are its due"
    )
    for name in ("old2", "old3"):
        world.terminate(f"{name}-0", f"{name}-1")
        world.delete(f"{name}-0", f"{name}-1")
    world.come(*(f"mine-{i}" for i in range(4)))
    world.land()
    world.later(1)
    assert world.engine.counters["preemption_victims", "gang/share"] == 4


def test_for_a_queue_of_higher_priority_another_keeps_what_it_deserves_and_no_more_than_needed_goes() -> None:
    world = borrowed(a_queue("a", deserved=gpus(4)), a_queue("b", priority=1))
    assert wants(world, a_gang("mine", 3, "b")) == ["old2", "old3"]
    world = borrowed(a_queue("a", deserved=gpus(6)), a_queue("b", priority=1))
    assert wants(world, a_gang("mine", 3, "b")) == []


def full_of(*sizes: int) -> PreemptionStory:
    """Eight GPUs with gangs of queue `a`, and a queue `b` of the same weight."""
    world = PreemptionStory(a_node("n1", *[16] * 4), a_node("n2", *[16] * 4))
    world.tell(*HALVES)
    for number, size in enumerate(sizes):
        world.start(*a_gang(f"of{number}", size, "a"))
        world.later(20)
    return world


def test_the_last_that_goes_may_leave_its_queue_less_than_its_due_but_lacking_less_than_the_other_did() -> None:
    world = full_of(5, 3)
    assert wants(world, a_gang("mine", 3, "b")) == ["of1"], "what is left is the due of the first"
    world = full_of(4, 4)
    assert wants(world, a_gang("mine", 3, "b")) == ["of1"], "the first lacks one then, the second lacked three"


def test_a_gang_stays_whose_queue_would_lack_as_much_as_the_other_does() -> None:
    assert wants(full_of(8), a_gang("mine", 3, "b")) == []
    assert wants(full_of(8), a_gang("mine", 4, "b")) == []


def test_priority_counts_for_nothing_between_queues() -> None:
    world = borrowed(a_queue("a", deserved=gpus(8)), a_queue("b"))
    assert wants(world, a_gang("urgent", 2, "b", 1000)) == []
    assert wants(world, a_gang("mine", 2, "a", 1)) == ["old3"]


# -- inside a queue that is full


def runs(world: PreemptionStory, gang: str) -> bool:
    return any(name.startswith(gang) and pod.spec.node_name for name, pod in world.pods.items())


def test_in_a_full_queue_one_of_higher_priority_takes_the_room_of_others_of_that_queue() -> None:
    world = borrowed(a_queue("a", capability=gpus(4)), a_queue("b"), jobs=2)
    world.start(*a_gang("theirs", 2, "b"))
    world.later(12)
    assert wants(world, a_gang("urgent", 2, "a", 1000)) == ["old1"]
    world.terminate("old1-0", "old1-1")
    world.come("urgent-0", "urgent-1")
    world.land()
    assert not runs(world, "urgent"), "its queue is full until the others are gone"
    world.delete("old1-0", "old1-1")
    world.come("urgent-0", "urgent-1")
    world.land()
    assert runs(world, "urgent")


def test_nobody_else_gets_the_room_in_a_queue_that_others_left_for_one() -> None:
    world = borrowed(a_queue("a", capability=gpus(4)), jobs=2)
    assert wants(world, a_gang("urgent", 4, "a", 1000)) == ["old0", "old1"]
    world.terminate("old0-0", "old0-1", "old1-0", "old1-1")
    world.delete("old0-0", "old0-1")
    world.create(*a_gang("other", 2, "a", 2000))
    world.later(2)
    assert world.come("other-0", "other-1") == ["QueueFull", "QueueFull"]
    world.delete("old1-0", "old1-1")
    world.come(*(f"urgent-{i}" for i in range(4)))
    world.land()
    assert runs(world, "urgent")


def test_what_is_promised_to_members_beyond_it_makes_no_room_for_the_smallest_start_of_a_gang() -> None:
    world = PreemptionStory(a_node("n1", *[16] * 4), a_node("n2", *[16] * 4))
    world.tell(a_queue("a", gpus=4))
    world.start(*a_gang("runs", 2, "a"))
    world.create(*a_gang("mine", 4, "a", least=3))
    rooms = {f"uid-mine-{i}": Room("n2", {"main": (f"GPU-n2-{i}",)}) for i in (2, 3)}
    told = reservation.encode(Reservation(codec.VERSION, rooms, "2100-01-01T00:00:00Z", preempting=True))
    annotations = world.pods["mine-0"].metadata.annotations | {names.RESERVATION: told}
    world.change("mine-0", annotations=annotations, managed=WRITTEN)
    world.tell(a_queue("a", gpus=5))
    assert world.come("mine-0", "mine-1", "mine-2", "mine-3") == ["QueueFull"] * 4
    world.later(301)
    assert world.phase("mine") is Phase.STARTING, "the time of the rooms is over"


# -- what is guaranteed


def guaranteed(**more: Any) -> PreemptionStory:
    """Eight GPUs, of which twelve are guaranteed."""
    world = PreemptionStory(a_node("n1", *[16] * 8))
    world.tell(a_queue("a", guarantee=gpus(6), **more), a_queue("b", guarantee=gpus(6), **more))
    return world


def test_where_more_is_guaranteed_than_there_is_who_comes_first_gets_its_part() -> None:
    world = guaranteed()
    world.create(*a_gang("seven", 7, "a"))
    assert set(world.come(*(f"seven-{i}" for i in range(7)))) == {"QueueReserved"}
    world.create(*a_gang("six", 6, "a"))
    world.come(*(f"six-{i}" for i in range(6)))
    world.land()
    assert runs(world, "six")


def test_the_same_holds_below_a_queue_that_may_have_less_than_it_guarantees() -> None:
    world = guaranteed(parent="both")
    world.tell(a_queue("both", capability=gpus(7)))
    world.create(*a_gang("six", 6, "a"))
    world.come(*(f"six-{i}" for i in range(6)))
    world.land()
    assert runs(world, "six")


def test_a_new_guarantee_gets_what_is_free_though_another_is_idle() -> None:
    world = PreemptionStory(a_node("n1", *[16] * 8))
    world.tell(a_queue("c"))
    world.start(*a_gang("old", 4, "c"))
    world.tell(a_queue("a", guarantee=gpus(3)), a_queue("b", guarantee=gpus(3)))
    world.create(*a_gang("mine", 3, "a"))
    world.come("mine-0", "mine-1", "mine-2")
    world.land()
    assert runs(world, "mine")


def test_a_queue_that_has_too_much_of_one_resource_gets_its_due_of_another() -> None:
    ascend = "huawei.com/Ascend910"
    world = PreemptionStory(a_node("n1", *[16] * 8, allocatable={"cpu": "64", "pods": "110", ascend: "8"}))
    world.tell(*(a_queue(name, deserved={**gpus(4), ascend: 4}) for name in "ab"))
    for name, queue, count in (("much", "a", 6), ("waits", "b", 4)):
        asked = [a_container("main", limits={ascend: f"{count}"})]
        world.create(urgent(a_pod(name, containers=asked, annotations=in_queue(queue)), 0))
    world.come("much")
    world.land()
    for i in range(4):
        world.start(*a_gang(f"old{i}", 2, "b"))
    world.later(12)
    assert wants(world, a_gang("mine", 2, "a")) == ["old0"]
