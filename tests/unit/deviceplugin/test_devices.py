"""What is offered of a machine."""

import tracemalloc

import msgspec
import pytest

from deviceplugin import devices
from deviceplugin.devices import Sharing, TooManyDevicesError
from deviceplugin.machine import Machine
from protos.contract import names
from protos.contract.inventory import Inventory
from tests.unit.deviceplugin.builders import a_machine, an_inventory

MEM, SLICE, WHOLE, SHARED = names.GPU_MEM, names.GPU_SLICE, names.WHOLE_GPU, names.SHARED_GPU


def an_inventory_of(machine: Machine, unit_mib: int) -> Inventory:
    gpus = tuple(msgspec.structs.replace(gpu, uuid=f"{gpu.uuid[:-1]}{gpu.index}") for gpu in machine.gpus)
    return devices.inventory(msgspec.structs.replace(machine, gpus=gpus), {}, Sharing(unit_mib=unit_mib))


def ids(resource: str, sharing: Sharing, *mems: int) -> list[str]:
    return [d.ID for d in devices.devices(resource, an_inventory(*mems, sharing=sharing), sharing).devices]


@pytest.mark.parametrize(
    ("resource", "sharing", "expected"),
    [
        (MEM, Sharing(), ["GPU-0::m0", "GPU-0::m1", "GPU-1::m0"]),
        (SLICE, Sharing(slices_per_gpu=2), ["GPU-0::s0", "GPU-0::s1", "GPU-1::s0", "GPU-1::s1"]),
        (WHOLE, Sharing(), ["GPU-0", "GPU-1"]),
        (WHOLE, Sharing(replicas={WHOLE: 2}), ["GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1"]),
        (SHARED, Sharing(replicas={SHARED: 2}), ["GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1"]),
        (WHOLE, Sharing(replicas={SHARED: 2}), ["GPU-0", "GPU-1"]),
        (
            names.ALIYUN_MEM,
            Sharing(resources=names.GPUSHARE_RESOURCES, gpushare=True),
            ["GPU-0-_-0", "GPU-0-_-1", "GPU-1-_-0"],
        ),
    ],
)
def test_device_ids(resource: str, sharing: Sharing, expected: list[str]) -> None:
    assert ids(resource, sharing, 2, 1) == expected


@pytest.mark.parametrize("device_id", ["GPU-7", "GPU-7::m12", "GPU-7::s3", "GPU-7::0", "GPU-7-_-4"])
def test_every_id_names_its_gpu(device_id: str) -> None:
    assert devices.gpu_of(device_id) == "GPU-7"


def test_memory_is_floored_to_units() -> None:
    gpu = devices.inventory(a_machine(79), {}, Sharing(unit_mib=10_000)).gpus[0]
    assert (gpu.mem, gpu.mem_mib) == (8, 79 * 1024)


def test_the_shared_name_is_served_only_where_there_are_replicas_of_it() -> None:
    assert Sharing().served == (MEM, SLICE, WHOLE)
    assert Sharing(replicas={SHARED: 4}).served == (MEM, SLICE, WHOLE, SHARED)


def test_of_a_sick_gpu_only_the_free_devices_are_unhealthy() -> None:
    inventory = an_inventory(2, 1, health={"GPU-0": "sick:xid-79"})
    found = devices.devices(MEM, inventory, Sharing(), held={"GPU-0::m1"})
    assert {d.ID: d.health for d in found.devices} == {
        "GPU-0::m0": "Unhealthy",
        "GPU-0::m1": "Healthy",
        "GPU-1::m0": "Healthy",
    }


@pytest.mark.parametrize("resource", [MEM, SLICE, WHOLE])
def test_a_gpu_in_mig_mode_is_offered_in_nothing(resource: str) -> None:
    inventory = an_inventory(2, 1, health={"GPU-0": "mig"})
    assert {devices.gpu_of(d.ID) for d in devices.devices(resource, inventory, Sharing()).devices} == {"GPU-1"}


def test_more_devices_than_one_message_holds_are_refused_with_a_unit_that_works() -> None:
    machine = a_machine(140, uuid="GPU-78dab8f0-b99f-58f9-bec2-c0b5fea397c8")
    fine, coarse = Sharing(unit_mib=1), Sharing(unit_mib=3)
    with pytest.raises(
        TooManyDevicesError, match=r"143360 devices make a message of up to \d+ bytes, .* unit of 3 MiB or more"
    ):
        devices.devices(MEM, devices.inventory(machine, {}, fine), fine)
    assert devices.devices(MEM, devices.inventory(machine, {}, coarse), coarse).ByteSize() < 4 * 2**20


def test_the_unit_that_a_refusal_names_is_accepted() -> None:
    machine = a_machine(*(140,) * 8, uuid="GPU-78dab8f0-b99f-58f9-bec2-c0b5fea397c8")
    with pytest.raises(TooManyDevicesError) as refused:
        devices.devices(MEM, an_inventory_of(machine, 1), Sharing(unit_mib=1))
    unit = int(str(refused.value).split("a memory unit of ")[1].split()[0])
    devices.devices(MEM, an_inventory_of(machine, unit), Sharing(unit_mib=unit))


def test_a_message_that_is_too_long_is_never_made() -> None:
    tracemalloc.start()
    with pytest.raises(TooManyDevicesError, match="80000000 devices"):
        devices.devices(SLICE, an_inventory(16), Sharing(slices_per_gpu=80_000_000))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


class TestPreferred:
    free = ("GPU-0::m0", "GPU-0::m1", "GPU-0::m10", "GPU-0::m2", "GPU-1::m0", "GPU-1::m1")

    def test_ids_name_the_gpu_lowest_first(self) -> None:
        assert devices.preferred(self.free, [], 3, ["GPU-0"], ()) == ["GPU-0::m0", "GPU-0::m1", "GPU-0::m2"]

    def test_several_gpus_share_evenly(self) -> None:
        chosen = devices.preferred(self.free, [], 4, ["GPU-0", "GPU-1"], ())
        assert sorted(chosen) == ["GPU-0::m0", "GPU-0::m1", "GPU-1::m0", "GPU-1::m1"]

    def test_what_must_be_in_is_in(self) -> None:
        assert devices.preferred(self.free, ["GPU-0::m2"], 2, ["GPU-1"], ()) == ["GPU-0::m2", "GPU-1::m0"]

    def test_taken_ids_are_avoided_and_others_fill_up(self) -> None:
        taken = {"GPU-1::m0"}
        assert devices.preferred(self.free, [], 2, ["GPU-1"], taken) == ["GPU-1::m1", "GPU-0::m0"]

    def test_the_answer_may_be_short(self) -> None:
        assert devices.preferred(["GPU-0::m0"], [], 3, ["GPU-0"], ()) == ["GPU-0::m0"]
