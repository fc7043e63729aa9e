"""What is offered of MIG instances: resources, devices, and when one is a whole GPU."""

import msgspec
import pytest

from deviceplugin import devices
from deviceplugin.devices import Sharing
from deviceplugin.machine import Machine
from deviceplugin.mig import strategy
from deviceplugin.mig.strategy import Strategy
from deviceplugin.offer import Offer
from protos.contract import names
from protos.contract.inventory import Inventory
from tests.unit.deviceplugin.builders import a_gpu, a_machine, a_split_machine, an_instance

MEM, SLICE, WHOLE, SHARED = names.GPU_MEM, names.GPU_SLICE, names.WHOLE_GPU, names.SHARED_GPU
ONE, TWO = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
EVEN, UNEVEN = a_split_machine("1g.10gb", "1g.10gb"), a_split_machine("1g.10gb", "2g.20gb", whole=1)


def an_inventory(machine: Machine, sharing: Sharing, **health: str) -> Inventory:
    healthy = {gpu.uuid: "mig" if gpu.mig else "ok" for gpu in machine.gpus}
    return devices.inventory(
        machine, healthy | {uuid.replace("_", "-"): word for uuid, word in health.items()}, sharing
    )


def offered(machine: Machine, resource: str, how: Strategy, **health: str) -> list[str]:
    sharing = Sharing(mig=how, slices_per_gpu=14)
    return [d.ID for d in devices.devices(resource, an_inventory(machine, sharing, **health), sharing).devices]


def test_an_instance_is_in_the_inventory_with_its_profile() -> None:
    *_, one, two = an_inventory(UNEVEN, Sharing(mig=Strategy.MIXED)).gpus
    assert (one.profile, one.mem, one.mem_mib, one.health) == ("1g.10gb", 9, 9728, "ok")
    assert (two.profile, two.mem, two.slices) == ("2g.20gb", 19, 2)


def test_mixed_has_a_resource_for_each_profile() -> None:
    sharing = Sharing(mig=Strategy.MIXED)
    assert devices.resources(an_inventory(UNEVEN, sharing), sharing) == (MEM, SLICE, WHOLE, ONE, TWO)
    assert devices.resources(an_inventory(a_machine(16), sharing), sharing) == (MEM, SLICE, WHOLE)
    assert offered(UNEVEN, ONE, Strategy.MIXED) == ["MIG-0-0"]
    assert offered(UNEVEN, TWO, Strategy.MIXED) == ["MIG-0-1"]
    assert offered(UNEVEN, WHOLE, Strategy.MIXED) == ["GPU-1"]


def test_the_resource_of_a_profile_with_an_attribute_has_its_instances() -> None:
    machine = a_split_machine("1g.10gb", "1g.10gb+me")
    assert offered(machine, "nvidia.com/mig-1g.10gb.me", Strategy.MIXED) == ["MIG-0-1"]
    assert offered(machine, ONE, Strategy.MIXED) == ["MIG-0-0"]


@pytest.mark.parametrize("how", [Strategy.SINGLE, Strategy.MIXED])
def test_instances_count_for_memory_and_slices(how: Strategy) -> None:
    mem = offered(UNEVEN, MEM, how)
    assert [mem.count(f"{uuid}::m0") for uuid in ("GPU-0", "GPU-1", "MIG-0-0", "MIG-0-1")] == [0, 1, 1, 1]
    assert len(mem) == 80 + 9 + 19
    slices = [devices.gpu_of(each) for each in offered(UNEVEN, SLICE, how)]
    assert {uuid: slices.count(uuid) for uuid in slices} == {"GPU-1": 14, "MIG-0-0": 2, "MIG-0-1": 4}


def test_single_serves_instances_as_whole_gpus_where_all_are_alike() -> None:
    sharing = Sharing(mig=Strategy.SINGLE)
    inventory = an_inventory(EVEN, sharing)
    assert inventory.single
    assert devices.resources(inventory, sharing) == (MEM, SLICE, WHOLE)
    assert offered(EVEN, WHOLE, Strategy.SINGLE) == ["MIG-0-0", "MIG-0-1"]


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (UNEVEN, "GPU 1 is not in MIG mode"),
        (a_split_machine("1g.10gb", "2g.20gb"), "there are instances of 1g.10gb, 2g.20gb"),
        (Machine(gpus=(EVEN.gpus[0], a_gpu(1, mig=True), *EVEN.gpus[1:])), "GPU 1 has no instance"),
        (Machine(gpus=(a_gpu(0, mig=True),)), "GPU 0 has no instance"),
    ],
)
def test_single_serves_none_of_them_so_where_they_are_not_and_says_why(machine: Machine, why: str) -> None:
    reason = strategy.not_uniform(machine.gpus)
    assert reason is not None
    assert (reason.code, reason.numbers) == (strategy.NOT_UNIFORM, why)
    assert not an_inventory(machine, Sharing(mig=Strategy.SINGLE)).single
    assert not any(each.startswith("MIG-") for each in offered(machine, WHOLE, Strategy.SINGLE))


def test_a_node_without_mig_is_as_always() -> None:
    assert strategy.not_uniform(a_machine(16, 16).gpus) is None
    assert not an_inventory(a_machine(16), Sharing(mig=Strategy.SINGLE)).single
    assert strategy.not_uniform(()) is None


def test_a_gone_instance_of_another_profile_does_not_count_for_uniformity() -> None:
    machine = Machine(gpus=(*EVEN.gpus, an_instance(0, 5, "3g.40gb")))
    assert an_inventory(machine, Sharing(mig=Strategy.SINGLE), MIG_0_5="gone").single


def test_replicas_are_no_instances() -> None:
    sharing = Sharing(mig=Strategy.SINGLE, replicas={SHARED: 4})
    assert not devices.devices(SHARED, an_inventory(EVEN, sharing), sharing).devices


def test_of_a_sick_gpu_with_instances_nothing_is_offered_but_what_is_held() -> None:
    sharing = Sharing(mig=Strategy.MIXED)
    sick = an_inventory(EVEN, sharing, GPU_0="sick:xid-79", MIG_0_0="sick:xid-79", MIG_0_1="sick:xid-79")
    found = devices.devices(ONE, sick, sharing, held={"MIG-0-1"}).devices
    assert {d.ID: d.health for d in found} == {"MIG-0-0": "Unhealthy", "MIG-0-1": "Healthy"}


@pytest.mark.parametrize(
    ("how", "resource", "counts"),
    [
        (Strategy.NONE, ONE, False),
        (Strategy.NONE, WHOLE, True),
        (Strategy.SINGLE, ONE, True),
        (Strategy.MIXED, ONE, True),
        (Strategy.MIXED, "cpu", False),
    ],
)
def test_which_resources_are_booked_here(how: Strategy, resource: str, counts: bool) -> None:
    assert Sharing(mig=how).counts(resource) is counts


def test_the_offer_follows_the_profiles_and_knows_the_device_nodes() -> None:
    offer = Offer(Sharing(mig=Strategy.MIXED))
    assert ONE not in offer.resources
    with_nodes = msgspec.structs.replace(an_instance(), nodes=("/dev/nvidia-caps/nvidia-cap12",))
    offer.set(Machine(gpus=(a_gpu(0, mig=True), with_nodes)), {"GPU-0": "mig"}, {})
    assert offer.resources == (MEM, SLICE, WHOLE, ONE)
    assert [d.ID for d in offer.devices(ONE).devices] == ["MIG-0-0"]
    assert offer.nodes == {"MIG-0-0": ("/dev/nvidia-caps/nvidia-cap12",)}
    offer.set(Machine(gpus=(a_gpu(0, mig=True),)), {"GPU-0": "mig"}, {})
    assert not offer.devices(ONE).devices
