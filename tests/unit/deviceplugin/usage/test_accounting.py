"""Used and promised, active and idle, and GPU-seconds: decisions without a driver."""

from __future__ import annotations

import pytest

from deviceplugin import devices
from deviceplugin.devices import Sharing
from deviceplugin.mig.strategy import Strategy
from deviceplugin.usage.accounting import KEPT_S, PAUSE_S, Accounting, Owner, Time
from deviceplugin.usage.holders import Promise
from deviceplugin.usage.places import GONE, OUTSIDE, Placed
from deviceplugin.usage.processes import Process, Sample
from protos.contract.bounds import OWNERS
from protos.contract.isolation import Isolation
from protos.contract.measured import INSTANCE, WHOLE, Use
from tests.unit.deviceplugin.builders import a_split_machine
from tests.unit.deviceplugin.usage.made import GIB, a_holder, an_inventory, group, on, silent

NODE = an_inventory(16, 16)
DEFAULT = Owner("default", "", "")


def by_pod(uses: tuple[Use, ...]) -> dict[str, Use]:
    return {use.pod or use.container: use for use in uses}


def test_the_processes_of_a_container_are_summed_up_beside_its_promise() -> None:
    sample = on(0, (1, group(1), 3), (2, group(1), 2.5), (3, group(2), 1), sm={1: 0.2, 2: 0.1})
    uses = by_pod(Accounting().look(0, NODE, [a_holder(1), a_holder(2, 8)], [sample, on(1)]))
    one, two = uses["p1"], uses["p2"]
    assert (one.used, one.promised, one.processes) == (int(5.5 * GIB), 4 * GIB, 2)
    assert one.sm == pytest.approx(0.3)
    assert (two.used, two.promised, two.sm) == (GIB, 8 * GIB, 0.0)
    assert (one.overuse, two.overuse) == (int(1.5 * GIB), 0)
    assert (one.gpu, one.uuid, one.container) == (0, "GPU-0", "main")


def test_processes_in_no_container_are_one_row_and_those_that_are_gone_are_none() -> None:
    sample = on(0, (1, OUTSIDE, 1), (2, group(9), 2), (3, GONE, 4))
    (use,) = Accounting().look(0, NODE, [], [sample])
    assert (use.pod, use.container, use.used, use.processes, use.idle, use.overuse) == ("", "-", 3 * GIB, 2, None, 0)


def test_a_pod_without_a_promise_on_a_gpu_is_shown_with_none() -> None:
    monitor = a_holder(1, 0, asks=False)
    stray = a_holder(2, 4, gpu=1)
    uses = by_pod(Accounting().look(0, NODE, [monitor, stray], [on(0, (1, group(1), 1), (2, group(2), 1))]))
    assert (uses["p1"].promised, uses["p1"].overuse, uses["p1"].level) == (0, 0, "")
    rows = Accounting().look(0, NODE, [stray], [on(0, (2, group(2), 1)), on(1)])
    assert {use.gpu: (use.promised, use.used, use.overuse) for use in rows} == {0: (0, GIB, GIB), 1: (4 * GIB, 0, 0)}


def test_memory_that_the_driver_does_not_tell_is_unknown_and_no_overuse() -> None:
    (use,) = Accounting().look(0, NODE, [a_holder(1, 1)], [on(0, (1, group(1), None), (2, group(1), 9))])
    assert (use.used, use.overuse, use.promised) == (None, 0, GIB)


def test_a_gpu_that_does_not_answer_takes_nothing_from_the_others() -> None:
    holders = [a_holder(1), a_holder(2, gpu=1)]
    accounting = Accounting()
    for now in (0, 100):
        uses = by_pod(accounting.look(now, NODE, holders, [silent(0), on(1, (2, group(2), 1), sm={})]))
    assert (uses["p1"].used, uses["p1"].sm, uses["p1"].idle) == (None, None, None)
    assert (uses["p2"].used, uses["p2"].idle) == (GIB, 100)
    uses = by_pod(accounting.look(110, NODE, holders, [on(0, sm={}), on(1, sm={})]))
    assert uses["p1"].idle == 10  # what it did in between, nobody knows


def test_a_container_is_idle_since_it_took_sm_time_last() -> None:
    accounting, holders = Accounting(), [a_holder(1)]
    idle = []
    for now, sm in ((0, 0.5), (10, 0.0), (20, 0.0), (30, 0.1), (40, 0.0)):
        (use,) = accounting.look(now, NODE, holders, [on(0, (1, group(1), 1), sm={1: sm})])
        idle.append(use.idle)
    assert idle == [0, 10, 20, 0, 10]


def test_where_the_driver_tells_no_sm_time_a_process_is_activity() -> None:
    accounting, holders = Accounting(), [a_holder(1)]
    (use,) = accounting.look(0, NODE, holders, [on(0)])
    (use,) = accounting.look(10, NODE, holders, [on(0)])
    assert (use.sm, use.idle) == (None, 10)
    (use,) = accounting.look(20, NODE, holders, [on(0, (1, group(1), 1))])
    assert use.idle == 0


def test_a_process_with_the_number_of_another_does_not_get_its_time() -> None:
    accounting, holders = Accounting(), [a_holder(1), a_holder(2)]
    accounting.look(0, NODE, holders, [on(0, (7, group(1), 1), sm={7: 0.5})])
    reused = on(0, (7, group(2), 1), sm={7: 0.5})
    reused = reused._replace(places={7: (group(2), 99)})
    uses = by_pod(accounting.look(10, NODE, holders, [reused]))
    assert (uses["p2"].sm, uses["p2"].used, uses["p1"].used) == (0.0, GIB, 0)
    assert by_pod(accounting.look(20, NODE, holders, [reused]))["p2"].sm == 0.5


@pytest.mark.parametrize(
    ("isolation", "whole", "level", "enforced"),
    [
        (None, False, "memory promised, compute promised", False),
        (Isolation(memory="driver"), False, "memory enforced (driver), compute promised", True),
        (Isolation(compute="cooperative"), False, "memory promised, compute capped (cooperative)", False),
        (None, True, WHOLE, True),
    ],
)
def test_the_level_is_that_of_the_node(isolation: Isolation | None, whole: bool, level: str, enforced: bool) -> None:
    node = an_inventory(16, isolation=isolation)
    (use,) = Accounting().look(0, node, [a_holder(1, 16, whole=whole)], [on(0, (1, group(1), 20))])
    assert (use.level, use.enforced, bool(use.overuse)) == (level, enforced, not whole)


def test_gpu_seconds_are_counted_by_namespace_queue_and_owner() -> None:
    accounting = Accounting()
    holders = [a_holder(1, queue="research", owner="Job/a"), a_holder(2, 16, gpu=1, whole=True)]
    for now in (0, 10, 20):
        sample = [on(0, (1, group(1), 2), sm={1: 0.5}), on(1)]
        accounting.look(now, NODE, holders, sample)
    assert accounting.times == {
        Owner("default", "research", "Job/a"): Time(promised=5.0, memory=2.5, sm=10.0, seen=20),
        DEFAULT: Time(promised=20.0, memory=0.0, sm=None, seen=20),
    }


def test_a_pod_that_comes_is_not_counted_for_the_time_before_nor_a_pause_in_full() -> None:
    accounting = Accounting()
    accounting.look(0, NODE, [], [on(0)])
    accounting.look(10, NODE, [a_holder(1)], [on(0)])
    assert accounting.times[DEFAULT].promised == 0
    accounting.look(10 + 10 * PAUSE_S, NODE, [a_holder(1)], [on(0)])
    assert accounting.times[DEFAULT].promised == PAUSE_S / 4


def test_what_is_remembered_ends_with_the_pods_and_is_bounded() -> None:
    accounting = Accounting()
    for number in range(OWNERS.most + 3):
        accounting.look(number / 1000, NODE, [a_holder(number, owner=f"Job/{number}")], [on(0)])
    assert len(accounting.times) == OWNERS.most
    assert len(accounting._active) == 1
    accounting.look(KEPT_S + 100, NODE, [], [on(0)])
    assert not accounting.times
    assert not accounting._active


def test_thousands_of_processes_are_one_row_for_each_container() -> None:
    processes = [(pid, group(1 + pid % 3), 0.001) for pid in range(1, 5000)]
    uses = Accounting().look(0, NODE, [a_holder(1), a_holder(2), a_holder(3)], [on(0, *processes)])
    assert sum(use.processes for use in uses) == 4999
    assert len(uses) == 3


class TestInstances:
    node = devices.inventory(a_split_machine("1g.10gb", "3g.40gb"), {"GPU-0": "mig"}, Sharing(mig=Strategy.MIXED))

    def sample(self, uuid: str, *pids: int) -> Placed:
        processes = tuple(Process(pid, GIB) for pid in pids)
        return Placed(Sample(uuid, processes), {pid: (group(pid), pid) for pid in pids})

    def test_a_process_on_an_instance_is_not_counted_for_its_gpu_again(self) -> None:
        promise = Promise("main", "MIG-0-0", 9728, True)
        holder = a_holder(1, promises=(promise,), parts={"MIG-0-0": 1 / 7})
        placed = [self.sample("GPU-0", 1, 3), self.sample("MIG-0-0", 1), self.sample("MIG-0-1")]
        uses = Accounting().look(0, self.node, [holder, a_holder(3, 0)], placed)
        assert {(use.uuid, use.pod, use.used) for use in uses} == {("GPU-0", "p3", GIB), ("MIG-0-0", "p1", GIB)}
        (own,) = [use for use in uses if use.pod == "p1"]
        assert (own.level, own.whole, own.enforced, own.promised) == (INSTANCE, True, True, 9728 * 2**20)

    def test_time_on_an_instance_counts_as_its_part_of_a_gpu(self) -> None:
        accounting = Accounting()
        holder = a_holder(1, promises=(Promise("main", "MIG-0-0", 9728, True),), parts={"MIG-0-0": 1 / 7})
        for now in (0.0, 70.0):
            accounting.look(now, self.node, [holder], [self.sample("MIG-0-0", 1)])
        assert accounting.times[DEFAULT].promised == pytest.approx(10)
        assert accounting.times[DEFAULT].memory == pytest.approx(10 * GIB / (9728 * 2**20))
