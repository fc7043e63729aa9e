"""MIG instances, seen through a pretended NVML."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from deviceplugin.machine import Gpu, Machine, Xid
from deviceplugin.mig import capabilities
from deviceplugin.mig.instances import gigabytes
from deviceplugin.nvml import NvmlSource
from protos.contract import mig
from tests.unit.deviceplugin import fake_nvml
from tests.unit.deviceplugin.fake_mig import Device, MigNvml, a_gpu

NAMELESS = {"name": pynvml.NVMLError_NotSupported()}


def read(*gpus: fake_nvml.Gpu, lacking: frozenset[str] = frozenset()) -> Machine:
    return NvmlSource(MigNvml(*gpus, lacking=lacking), mig=True).read()


def instances(machine: Machine) -> dict[str, Gpu]:
    return {gpu.uuid: gpu for gpu in machine.gpus if gpu.profile}


def test_an_instance_is_an_entry_after_the_gpus_with_what_its_gpu_is() -> None:
    machine = read(a_gpu(0, Device("MIG-a", "3g.40gb", gi=2, ci=1), minor=5), fake_nvml.Gpu(1))
    card, other, instance = machine.gpus
    assert (card.mig, other.mig) == (True, False)
    assert machine.cards == (card, other)
    assert (instance.uuid, instance.profile, instance.parent) == ("MIG-a", "3g.40gb", "GPU-0")
    assert (instance.index, instance.mem_mib, instance.gi, instance.ci) == (mig.index(0, 0), 40448, 2, 1)
    same = ("minor", "model", "clock_mhz", "cc", "numa", "pci")
    assert [getattr(instance, field) for field in same] == [getattr(card, field) for field in same]
    assert (instance.mig, instance.trouble) == (False, "")


def test_places_may_have_holes_and_are_kept() -> None:
    machine = read(fake_nvml.Gpu(0), a_gpu(1, None, Device("MIG-a"), None, None, Device("MIG-b")))
    assert {u: mig.shown(g.index) for u, g in instances(machine).items()} == {"MIG-a": "1:1", "MIG-b": "1:4"}


def test_without_the_strategy_nothing_of_it_is_read() -> None:
    gpu = a_gpu(0, Device("MIG-a"), count=RuntimeError("asked"))
    assert [gpu.uuid for gpu in NvmlSource(MigNvml(gpu)).read().gpus] == ["GPU-0"]


def test_a_gpu_in_mig_mode_without_instances_is_alone() -> None:
    assert [gpu.uuid for gpu in read(a_gpu(0)).gpus] == ["GPU-0"]
    assert [gpu.uuid for gpu in read(a_gpu(0, count=0)).gpus] == ["GPU-0"]


@pytest.mark.parametrize(
    "lacking",
    ["nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"],
)
def test_a_driver_without_the_calls_shows_no_instances(lacking: str) -> None:
    assert not instances(read(a_gpu(0, Device("MIG-a")), lacking=frozenset({lacking})))


@pytest.mark.parametrize("error", [pynvml.NVMLError_NoPermission, pynvml.NVMLError_FunctionNotFound])
def test_a_driver_that_refuses_the_calls_shows_no_instances(error: type[Exception]) -> None:
    machine = read(a_gpu(0, Device("MIG-a"), devices=error()), fake_nvml.Gpu(1))
    assert [(gpu.uuid, gpu.trouble) for gpu in machine.gpus] == [("GPU-0", ""), ("GPU-1", "")]


@pytest.mark.parametrize(
    ("lacking", "mem_mib", "ids"),
    [
        ("nvmlDeviceGetAttributes_v2", 9728, (1, 0)),
        ("nvmlDeviceGetGpuInstanceId", 9728, (-1, 0)),
        ("nvmlDeviceGetComputeInstanceId", 9728, (1, -1)),
    ],
)
def test_a_call_that_is_lacking_costs_what_it_tells_alone(lacking: str, mem_mib: int, ids: tuple[int, int]) -> None:
    found = instances(read(a_gpu(0, Device("MIG-a")), lacking=frozenset({lacking})))["MIG-a"]
    assert (found.profile, found.mem_mib, (found.gi, found.ci)) == ("1g.10gb", mem_mib, ids)


@pytest.mark.parametrize("vanishing", ["uuid", "attributes"])
def test_an_instance_that_vanishes_between_two_calls_is_not_there(vanishing: str) -> None:
    gone = pynvml.NVMLError_NotFound()
    device = Device("MIG-a")
    device.fields |= {vanishing: gone, "memory_v1": gone, "name": gone}
    machine = read(a_gpu(0, device, Device("MIG-b", gi=2)))
    assert list(instances(machine)) == ["MIG-b"]
    assert machine.gpus[0].trouble == ""


@pytest.mark.parametrize(
    ("profile", "expected"), [("1g.10gb", "1g.10gb"), ("7g.80gb", "7g.80gb"), ("1c.3g.40gb", "1c.3g.40gb")]
)
def test_a_driver_without_names_of_devices_tells_slices_and_memory(profile: str, expected: str) -> None:
    assert instances(read(a_gpu(0, Device("MIG-a", profile, **NAMELESS))))["MIG-a"].profile == expected


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        ("1_SLICE_REV1", "1g.10gb+me"),
        ("1_SLICE_NO_ME", "1g.10gb-me"),
        ("1_SLICE_ALL_ME", "1g.10gb+me.all"),
        ("1_SLICE_GFX", "1g.10gb+gfx"),
        ("1_SLICE", "1g.10gb"),
    ],
)
def test_profiles_of_the_same_size_are_told_apart(constant: str, expected: str) -> None:
    number = 100 + getattr(pynvml, f"NVML_GPU_INSTANCE_PROFILE_{constant}")
    device = Device("MIG-a", profile_id=number, **NAMELESS)
    assert instances(read(a_gpu(0, device)))["MIG-a"].profile == expected


@pytest.mark.parametrize(
    ("mib", "total_gib", "expected"),
    [(4864, 40, 5), (9728, 80, 10), (40192, 80, 40), (5952, 24, 6), (16896, 141, 18), (71424, 141, 71), (1, 0, 0)],
)
def test_memory_in_the_name_of_a_profile_is_in_eighths_of_the_gpu(mib: int, total_gib: int, expected: int) -> None:
    assert gigabytes(mib, total_gib * 2**30) == expected


def test_a_device_with_a_name_that_is_none_is_left_out() -> None:
    odd = Device("MIG-a", name="NVIDIA X MIG 9g.800gb", attributes=pynvml.NVMLError_NotSupported())
    assert list(instances(read(a_gpu(0, odd, Device("MIG-b"))))) == ["MIG-b"]


def test_what_is_constant_is_read_once() -> None:
    device = Device("MIG-a")
    source = NvmlSource(MigNvml(a_gpu(0, device)), mig=True)
    first, again = source.read(), source.read()
    assert (device.reads, first) == (1, again)


def test_instances_come_and_go() -> None:
    gpu = a_gpu(0, Device("MIG-a"), Device("MIG-b", gi=2))
    source = NvmlSource(MigNvml(gpu), mig=True)
    assert list(instances(source.read())) == ["MIG-a", "MIG-b"]
    gpu.fields["devices"] = [Device("MIG-c", "2g.20gb", gi=3), None, Device("MIG-b", gi=2)]
    found = instances(source.read())
    assert {u: (g.profile, mig.shown(g.index)) for u, g in found.items()} == {
        "MIG-c": ("2g.20gb", "0:0"),
        "MIG-b": ("1g.10gb", "0:2"),
    }
    gpu.fields["mig"] = [0, 0]
    assert not instances(source.read())


def test_while_a_gpu_fails_its_instances_are_in_trouble_as_they_were() -> None:
    gpu = a_gpu(0, Device("MIG-a"))
    source = NvmlSource(MigNvml(gpu, a_gpu(1, Device("MIG-b"))), mig=True)
    source.read()
    gpu.fields["devices"] = pynvml.NVMLError_Unknown()
    found = instances(source.read())
    assert {u: g.trouble for u, g in found.items()} == {"MIG-a": "nvml-unknown-error", "MIG-b": ""}
    gpu.fields["devices"] = [Device("MIG-a")]
    assert instances(source.read())["MIG-a"].trouble == ""


@pytest.mark.parametrize(
    ("ids", "hit"),
    [((1, 0), ["MIG-a"]), ((1, 0xFFFFFFFF), ["MIG-a", "MIG-b"]), ((9, 0), ["GPU-0"]), ((), ["GPU-0"])],
)
def test_an_error_is_of_the_instance_that_it_names_or_of_the_gpu(ids: tuple[int, ...], hit: list[str]) -> None:
    nvml = MigNvml(a_gpu(0, Device("MIG-a", "1c.2g.20gb"), Device("MIG-b", "1c.2g.20gb", ci=1), Device("MIG-c", gi=2)))
    source = NvmlSource(nvml, mig=True)
    source.read()
    event: Any = (nvml.gpus[0], 94, *ids)
    nvml.events.append(event)
    assert source.poll(0) == [Xid(uuid, 94) for uuid in hit]


def test_the_device_nodes_of_an_instance_come_from_the_drivers_table(tmp_path: Path) -> None:
    table = tmp_path / "mig-minors"
    table.write_text("config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi2/access x\nodd\n")
    caps = "/dev/nvidia-caps/nvidia-cap"
    assert capabilities.nodes(0, 1, 0, table) == (f"{caps}12", f"{caps}13")
    assert capabilities.nodes(0, 1, 1, table) == ()
    assert capabilities.nodes(0, 2, 0, table) == ()
    assert capabilities.nodes(0, 1, 0, tmp_path / "none") == ()


def test_memory_of_a_gpu_is_not_that_of_its_instances() -> None:
    memory = SimpleNamespace(total=80 * 2**30, reserved=2**30)
    assert read(a_gpu(0, Device("MIG-a"), memory=memory)).gpus[0].mem_mib == 79 * 1024
