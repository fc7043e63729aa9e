"""Instances that were made on demand are measured as those of the pods whose places they are at."""

from __future__ import annotations

import msgspec
import pytest

from deviceplugin import devices
from deviceplugin.devices import Sharing
from deviceplugin.machine import Gpu
from deviceplugin.mig.strategy import Strategy
from deviceplugin.partitioner.fake import kinds
from deviceplugin.usage import holders
from deviceplugin.usage.accounting import Accounting, Owner
from deviceplugin.usage.holders import Holder, Promise
from deviceplugin.usage.places import OUTSIDE, Place, Placed
from deviceplugin.usage.processes import Process, Sample
from protos.contract import allocation, codec, mig, names
from protos.contract.allocation import Allocation, Share
from protos.contract.books import NodeBooks
from protos.contract.measured import INSTANCE, Use
from protos.contract.on_demand import OnDemand
from tests.unit.deviceplugin.builders import a_container, a_pod, a_split_machine
from tests.unit.deviceplugin.usage import made
from tests.unit.deviceplugin.usage.made import GIB, MIB, a_holder, group

CARD = Gpu(index=0, uuid="GPU-0", minor=0, mem_mib=81039)
MACHINE = msgspec.structs.replace(a_split_machine(), kinds={"GPU-0": kinds(CARD)})
NODE = devices.inventory(MACHINE, {"GPU-0": "mig"}, Sharing(mig=Strategy.MIXED))
SMALL, OTHER, LARGE = "GPU-0/1g.10gb@0:1", "GPU-0/1g.10gb@1:1", "GPU-0/3g.40gb@4:4"


def having(number: int, *places: str) -> Holder:
    return a_holder(number, promises=tuple(Promise("main", name, 9728, True) for name in places), parts={})


def sample(uuid: str, *processes: tuple[int, Place], trouble: str = "") -> Placed:
    """Each process with its number and where it is."""
    listed = tuple(Process(pid, GIB) for pid, _ in processes)
    return Placed(Sample(uuid, listed, trouble=trouble), {pid: (place, pid) for pid, place in processes})


def look(having: list[Holder], *placed: Placed) -> dict[str, Use]:
    uses = Accounting().look(0, NODE, having, placed)
    assert len({use.uuid for use in uses}) == len(uses)
    return {use.uuid: use for use in uses}


def used(found: dict[str, Use]) -> dict[str, tuple[str, float | None]]:
    return {uuid: (use.pod, use.used) for uuid, use in found.items()}


def test_an_instance_is_that_of_the_pod_whose_processes_are_on_it() -> None:
    found = look(
        [having(1, SMALL), having(2, LARGE)],
        sample("GPU-0", (1, group(1)), (2, group(2)), (3, group(2))),
        sample("MIG-b", (2, group(2)), (3, group(2))),
        sample("MIG-a", (1, group(1))),
    )
    assert used(found) == {SMALL: ("p1", GIB), LARGE: ("p2", 2 * GIB)}
    own = found[LARGE]
    assert (own.level, own.enforced, own.promised, mig.shown(own.gpu)) == (INSTANCE, True, 9728 * MIB, "0@4-7")


def test_an_instance_without_processes_is_used_by_nobody_if_all_are_shown_and_unknown_otherwise() -> None:
    both = [having(1, SMALL), having(2, OTHER)]
    busy = sample("MIG-a", (1, group(1)))
    assert used(look(both, sample("GPU-0"), busy, sample("MIG-b"))) == {SMALL: ("p1", GIB), OTHER: ("p2", 0)}
    assert used(look(both, sample("GPU-0"), busy)) == {SMALL: ("p1", GIB), OTHER: ("p2", None)}
    silent = sample("MIG-b", trouble="it does not answer")
    assert used(look(both, sample("GPU-0"), busy, silent)) == {SMALL: ("p1", GIB), OTHER: ("p2", None)}


def test_a_process_that_only_the_list_of_its_gpu_has_is_on_the_place_of_its_pod() -> None:
    everything = sample("GPU-0", (1, group(1)), (2, group(1)), (7, group(7)), (8, OUTSIDE))
    found = Accounting().look(0, NODE, [having(1, SMALL)], [everything])
    assert {(use.uuid, use.pod, use.used) for use in found} == {(SMALL, "p1", 2 * GIB), ("GPU-0", "", 2 * GIB)}


def test_several_instances_of_a_container_are_each_at_one_of_its_places() -> None:
    found = look([having(1, SMALL, OTHER)], sample("MIG-a", (1, group(1))), sample("MIG-b", (2, group(1))))
    assert used(found) == {SMALL: ("p1", GIB), OTHER: ("p1", GIB)}


def test_an_instance_of_nobody_is_left_out() -> None:
    assert used(look([having(1, SMALL)], sample("MIG-a", (8, OUTSIDE)))) == {SMALL: ("p1", 0)}


def test_time_counts_as_the_part_of_a_gpu_that_the_instance_is() -> None:
    accounting = Accounting()
    for now in (0.0, 70.0):
        accounting.look(now, NODE, [having(1, SMALL)], [sample("MIG-a", (1, group(1)))])
    assert accounting.times[Owner("default", "", "")].memory == pytest.approx(10 * GIB / (9728 * MIB))


def test_a_pod_is_promised_the_instance_at_the_place_that_its_allocation_names() -> None:
    (gpu,) = [each for each in OnDemand(NODE).instances if each.uuid == LARGE]
    share = Share(index=gpu.index, uuid=LARGE, mem=gpu.mem, slices=NODE.slices_per_gpu, whole=True)
    written = Allocation(v=codec.VERSION, unit_mib=1024, slices_per_gpu=100, containers={"main": (share,)})
    annotations = {names.ALLOCATION: allocation.encode(written), names.MIG_PROFILE: "3g.40gb"}
    pod = made.a_pod(a_pod("p", a_container(mem=4), annotations=annotations))
    found = holders.holder(pod, NodeBooks(NODE), names.DEFAULT_RESOURCES)
    assert found is not None
    assert found.promises == (Promise("main", LARGE, gpu.mem_mib, True),)
    assert found.parts == {LARGE: pytest.approx(3 / 7)}
