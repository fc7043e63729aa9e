"""When a GPU is well, sick or gone."""

import pytest

from deviceplugin.health import Health
from deviceplugin.machine import Machine, Xid
from protos.contract import mig
from tests.unit.deviceplugin.builders import a_gpu, a_machine, a_split_machine, an_instance

GPU = a_gpu(0)


def words(health: Health, machine: Machine) -> list[str]:
    return [health.of(gpu) for gpu in machine.gpus]


def test_a_gpu_is_healthy_until_an_error_comes() -> None:
    health = Health()
    assert words(health, health.step(a_machine(16, 16), [], 0)) == ["ok", "ok"]


def test_a_critical_error_makes_one_gpu_sick() -> None:
    health = Health()
    assert words(health, health.step(a_machine(16, 16), [Xid("GPU-1", 79)], 0)) == ["ok", "sick:xid-79"]


def test_an_error_without_a_name_makes_all_sick() -> None:
    health = Health()
    assert words(health, health.step(a_machine(16, 16), [Xid("", 79)], 0)) == ["sick:xid-79", "sick:xid-79"]


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 109])
def test_errors_of_programs_are_ignored(code: int) -> None:
    health = Health()
    assert words(health, health.step(a_machine(16), [Xid("GPU-0", code)], 0)) == ["ok"]


def test_which_errors_are_ignored_is_a_setting() -> None:
    health = Health(ignored=[79])
    machine = health.step(a_machine(16), [Xid("GPU-0", 79), Xid("GPU-0", 13)], 0)
    assert words(health, machine) == ["sick:xid-13"]


def test_a_gpu_is_well_again_after_the_cool_down() -> None:
    health = Health(cool_down=300)
    health.step(a_machine(16), [Xid("GPU-0", 79)], 0)
    assert words(health, health.step(a_machine(16), [], 299)) == ["sick:xid-79"]
    assert words(health, health.step(a_machine(16), [], 300)) == ["ok"]


def test_a_new_error_starts_the_cool_down_again() -> None:
    health = Health(cool_down=300)
    health.step(a_machine(16), [Xid("GPU-0", 79)], 0)
    health.step(a_machine(16), [Xid("GPU-0", 48)], 200)
    assert words(health, health.step(a_machine(16), [], 400)) == ["sick:xid-48"]


def test_a_gpu_in_trouble_stays_sick_however_long_it_takes() -> None:
    health = Health(cool_down=0)
    ill = Machine(gpus=(a_gpu(0, trouble="recovery-action-1"),))
    for now in (0, 1000):
        assert words(health, health.step(ill, [], now)) == ["sick:recovery-action-1"]
    assert words(health, health.step(a_machine(16), [], 1001)) == ["ok"]


def test_a_lost_gpu_is_gone_but_not_forgotten() -> None:
    health = Health(cool_down=10)
    health.step(a_machine(16, 16), [], 0)
    machine = health.step(Machine(gpus=(a_gpu(0),)), [], 1)
    assert words(health, machine) == ["ok", "gone"]
    back = health.step(a_machine(16, 16), [], 2)
    assert words(health, back) == ["ok", "sick:was-gone"]
    assert words(health, health.step(a_machine(16, 16), [], 12)) == ["ok", "ok"]


def test_a_lost_gpu_is_gone_also_if_the_driver_renumbers_the_others() -> None:
    health = Health()
    before = tuple(a_gpu(place, uuid=f"GPU-{place}", pci=f"0000:0{place}:00.0") for place in range(3))
    health.step(Machine(gpus=before), [], 0)
    left = tuple(a_gpu(place, uuid=gpu.uuid, pci=gpu.pci) for place, gpu in enumerate((before[0], before[2])))
    for now in (1, 2):
        machine = health.step(Machine(gpus=left), [], now)
        assert [(gpu.index, gpu.uuid) for gpu in machine.gpus] == [(0, "GPU-0"), (1, "GPU-2"), (2, "GPU-1")]
        assert words(health, machine) == ["ok", "ok", "gone"]
    new = a_gpu(1, uuid="GPU-new", pci=before[1].pci)
    machine = health.step(Machine(gpus=(before[0], new, before[2])), [], 3)
    assert [gpu.uuid for gpu in machine.gpus] == ["GPU-0", "GPU-new", "GPU-2"]


def test_a_replaced_gpu_ends_the_one_in_its_place() -> None:
    health = Health()
    health.step(a_machine(16), [], 0)
    machine = health.step(Machine(gpus=(a_gpu(0, uuid="GPU-new"),)), [], 1)
    assert [gpu.uuid for gpu in machine.gpus] == ["GPU-new"]


def test_a_silent_driver_makes_every_gpu_sick() -> None:
    health = Health(cool_down=10)
    machine = health.step(a_machine(16, 16), [], 0)
    health.silent("driver-silent", 1)
    assert words(health, machine) == ["sick:driver-silent"] * 2
    assert words(health, health.step(a_machine(16, 16), [], 11)) == ["ok", "ok"]


def test_a_gpu_in_mig_mode_says_so() -> None:
    health = Health()
    assert words(health, health.step(a_machine(16, mig=True), [], 0)) == ["mig"]


class TestInstances:
    two = a_split_machine("1g.10gb", "1g.10gb")

    def without(self, *uuids: str) -> Machine:
        return Machine(gpus=tuple(gpu for gpu in self.two.gpus if gpu.uuid not in uuids))

    def test_an_instance_is_healthy_while_its_gpu_is_in_mig_mode(self) -> None:
        health = Health()
        assert words(health, health.step(self.two, [], 0)) == ["mig", "ok", "ok"]

    def test_an_instance_is_sick_with_its_gpu_or_alone(self) -> None:
        health = Health(cool_down=300)
        assert words(health, health.step(self.two, [Xid("GPU-0", 79)], 0)) == ["sick:xid-79"] * 3
        assert words(health, health.step(self.two, [Xid("MIG-0-1", 94)], 300)) == ["mig", "ok", "sick:xid-94"]

    def test_a_destroyed_instance_is_gone_while_a_pod_holds_it(self) -> None:
        health = Health()
        health.step(self.two, [], 0)
        less = self.without("MIG-0-0", "MIG-0-1")
        found = health.step(less, [], 1, held={"MIG-0-1"})
        assert [(gpu.uuid, health.of(gpu)) for gpu in found.gpus] == [("GPU-0", "mig"), ("MIG-0-1", "gone")]
        assert health.step(less, [], 2).gpus == less.gpus

    def test_a_new_instance_in_its_place_leaves_the_held_one_another(self) -> None:
        health = Health()
        health.step(self.two, [], 0)
        new = Machine(gpus=(*self.without("MIG-0-0").gpus, an_instance(0, 0, "2g.20gb", uuid="MIG-new")))
        found = {gpu.uuid: gpu for gpu in health.step(new, [], 1, held={"MIG-0-0"}).gpus}
        assert (found["MIG-new"].index, health.of(found["MIG-new"])) == (mig.index(0, 0), "ok")
        assert (found["MIG-0-0"].index, health.of(found["MIG-0-0"])) == (mig.index(0, 2), "gone")

    def test_the_instances_of_a_lost_gpu_are_gone_until_it_is_back_and_then_cool_down(self) -> None:
        health = Health(cool_down=300)
        health.step(self.two, [], 0)
        assert words(health, health.step(Machine(), [], 1)) == ["gone"] * 3
        assert words(health, health.step(self.two, [], 2)) == ["sick:was-gone"] * 3
        assert words(health, health.step(self.two, [], 301)) == ["mig", "ok", "ok"]

    def test_the_instances_of_a_renumbered_gpu_keep_to_it(self) -> None:
        health = Health()
        machine = a_split_machine("1g.10gb", gpus=2)
        health.step(machine, [], 0)
        left = Machine(
            gpus=(a_gpu(0, 80, uuid="GPU-1", mig=True, pci="b"), an_instance(0, 0, uuid="MIG-1-0", parent="GPU-1"))
        )
        found = health.step(left, [], 1)
        assert {gpu.uuid: mig.shown(gpu.index) for gpu in found.gpus} == {
            "GPU-1": "0",
            "GPU-0": "1",
            "MIG-1-0": "0:0",
            "MIG-0-0": "1:0",
        }

    def test_of_a_gpu_that_left_mig_mode_no_instance_stays(self) -> None:
        health = Health()
        health.step(self.two, [], 0)
        left = a_machine(80)
        assert health.step(left, [], 1, held={"MIG-0-0"}).gpus == left.gpus

    def test_a_replaced_gpu_takes_its_instances_along(self) -> None:
        health = Health()
        health.step(self.two, [], 0)
        new = Machine(gpus=(a_gpu(0, 80, uuid="GPU-new", mig=True),))
        assert health.step(new, [], 1, held={"MIG-0-0"}).gpus == new.gpus
