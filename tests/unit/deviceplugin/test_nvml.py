"""Real GPUs, seen through a pretended NVML."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pynvml
import pytest

from deviceplugin.machine import Machine, SourceError, Xid
from deviceplugin.nvlink import bus_id
from deviceplugin.nvml import NvmlSource
from protos.contract.inventory import Fabric
from tests.unit.deviceplugin.fake_nvml import GIB, FakeNvml, Gpu

ABSENT = pynvml.NVMLError_NotSupported()


def read(*gpus: Gpu) -> Machine:
    return NvmlSource(FakeNvml(*gpus)).read()


def kinds(nvml: FakeNvml) -> dict[tuple[int, int], str]:
    return {(a, b): kind for a, b, kind in NvmlSource(nvml).read().links}


def test_all_that_a_gpu_tells() -> None:
    (gpu,) = read(Gpu(0, minor=3)).gpus
    assert (gpu.index, gpu.uuid, gpu.minor, gpu.model) == (0, "GPU-0", 3, "NVIDIA A100-SXM4-80GB")
    assert (gpu.mem_mib, gpu.clock_mhz, gpu.cc, gpu.numa, gpu.pci) == (79 * 1024, 1410, "8.0", 1, "0000:01:00.0")
    assert (gpu.mig, gpu.trouble) == (False, "")


@pytest.mark.parametrize(
    ("field", "attribute", "default"),
    [
        ("minor", "minor", 0),
        ("name", "model", ""),
        ("clock", "clock_mhz", 0),
        ("cc", "cc", ""),
        ("numa", "numa", -1),
        ("bus", "pci", ""),
        ("mig", "mig", False),
        ("recovery", "trouble", ""),
        ("memory", "mem_mib", 80 * 1024),
    ],
)
@pytest.mark.parametrize(
    "absent", [ABSENT, pynvml.NVMLError_InsufficientSize(), pynvml.NVMLError_ArgumentVersionMismatch()], ids=str
)
def test_what_a_gpu_does_not_support_costs_that_field_alone(
    field: str, attribute: str, default: Any, absent: pynvml.NVMLError
) -> None:
    (gpu,) = read(Gpu(0, **{field: absent})).gpus
    assert getattr(gpu, attribute) == default
    assert gpu.uuid == "GPU-0"
    assert gpu.trouble == ""


def test_a_gpu_that_fails_is_in_trouble_and_the_others_are_not() -> None:
    ill, well = read(Gpu(0, clock=pynvml.NVMLError_Unknown()), Gpu(1)).gpus
    assert ill.trouble == "nvml-unknown-error"
    assert well.trouble == ""


def test_what_a_gpu_in_trouble_does_not_say_is_as_it_was() -> None:
    gpu = Gpu(0, minor=3)
    source = NvmlSource(FakeNvml(gpu))
    (before,) = source.read().gpus
    gpu.fields |= dict.fromkeys(("memory", "minor", "name", "clock"), pynvml.NVMLError_Unknown())
    (after,) = source.read().gpus
    assert after == msgspec.structs.replace(before, trouble="nvml-unknown-error")


def test_a_gpu_that_is_lost_is_not_there() -> None:
    assert [gpu.index for gpu in read(Gpu(0, uuid=pynvml.NVMLError_GpuIsLost()), Gpu(1)).gpus] == [1]


def test_a_pending_recovery_action_is_trouble() -> None:
    (gpu,) = read(Gpu(0, recovery=pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET)).gpus
    assert gpu.trouble == "recovery-action-1"


@pytest.mark.parametrize(("mode", "mig"), [([0, 0], False), ([1, 1], True), ([0, 1], True)])
def test_mig_mode_counts_from_the_moment_it_is_pending(mode: list[int], mig: bool) -> None:
    assert read(Gpu(0, mig=mode)).gpus[0].mig is mig


def test_switched_nvlinks_are_a_full_mesh() -> None:
    gpus = [Gpu(i, links=dict.fromkeys(range(12), "switch")) for i in range(3)]
    assert kinds(FakeNvml(*gpus)) == {(0, 1): "NV12", (0, 2): "NV12", (1, 2): "NV12"}


def test_direct_nvlinks_are_counted_by_pair_and_the_rest_is_pcie() -> None:
    first = Gpu(0, links={0: "00000000:02:00.0", 1: "00000000:02:00.0"})
    second = Gpu(1, links={3: "00000000:01:00.0"})  # one direction says less
    nvml = FakeNvml(first, second, Gpu(2))
    nvml.closeness[frozenset((1, 2))] = pynvml.NVML_TOPOLOGY_MULTIPLE
    assert kinds(nvml) == {(0, 1): "NV2", (0, 2): "SYS", (1, 2): "PXB"}


@pytest.mark.parametrize(
    ("level", "kind"),
    [
        ("INTERNAL", "PIX"),
        ("SINGLE", "PIX"),
        ("MULTIPLE", "PXB"),
        ("HOSTBRIDGE", "PHB"),
        ("NODE", "NODE"),
        ("SYSTEM", "SYS"),
    ],
)
def test_pcie_closeness(level: str, kind: str) -> None:
    nvml = FakeNvml(Gpu(0), Gpu(1))
    nvml.closeness[frozenset((0, 1))] = getattr(pynvml, f"NVML_TOPOLOGY_{level}")
    assert kinds(nvml) == {(0, 1): kind}


def test_the_fabric_over_several_nodes() -> None:
    assert read(Gpu(0, fabric=(bytes(range(16)), 5))).fabric == Fabric(bytes(range(16)).hex(), 5)
    assert read(Gpu(0, fabric=(bytes(16), 5))).fabric is None
    assert read(Gpu(0)).fabric is None
    assert read(Gpu(0, fabric=pynvml.NVMLError_Unknown())).fabric is None


def test_errors_come_with_the_gpu_that_they_are_of() -> None:
    nvml = FakeNvml(Gpu(0), Gpu(1))
    source = NvmlSource(nvml)
    source.read()
    nvml.events.append((nvml.gpus[1], 79))
    assert source.poll(0) == [Xid("GPU-1", 79)]
    assert source.poll(0) == []


def test_the_error_of_a_gpu_that_fell_off_the_bus_comes_with_its_name() -> None:
    nvml = FakeNvml(Gpu(0), Gpu(1))
    source = NvmlSource(nvml)
    source.read()
    nvml.gpus[1].fields["uuid"] = pynvml.NVMLError_GpuIsLost()
    nvml.events.append((nvml.gpus[1], 79))
    assert source.poll(0) == [Xid("GPU-1", 79)]
    nvml.events.append((Gpu(7, uuid=pynvml.NVMLError_GpuIsLost()), 79))
    assert source.poll(0) == [Xid("", 79)], "nobody knows it: it may be any"


def test_a_storm_of_errors_is_taken_in_at_one_go() -> None:
    nvml = FakeNvml(Gpu(0), Gpu(1))
    source = NvmlSource(nvml)
    source.read()
    nvml.events += [(nvml.gpus[i % 2], 31) for i in range(500)]
    assert source.poll(0) == [Xid("GPU-0", 31), Xid("GPU-1", 31)]
    assert source.poll(0) == []


def test_a_gpu_that_comes_back_is_listened_to_again() -> None:
    nvml = FakeNvml(Gpu(0), Gpu(1))
    source = NvmlSource(nvml)
    source.read()
    lost = nvml.gpus.pop()
    source.read()
    nvml.gpus.append(lost)
    source.read()
    assert nvml.registered == ["GPU-0", "GPU-1", "GPU-1"]


def test_a_gpu_without_events_does_not_keep_the_others_from_theirs() -> None:
    nvml = FakeNvml(Gpu(0, clock=ABSENT), Gpu(1))
    source = NvmlSource(nvml)
    source.read()
    source.read()
    assert nvml.registered == ["GPU-1"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            pynvml.NVMLError_LibraryNotFound(),
            r"the NVIDIA driver is not loaded \(NVML Shared Library Not Found\)",
        ),
        (pynvml.NVMLError_DriverNotLoaded(), r"the NVIDIA driver is not loaded \(Driver Not Loaded\)"),
        (pynvml.NVMLError_Unknown(), r"NVML does not start \(Unknown Error\)"),
    ],
)
def test_a_driver_that_is_not_there_is_a_sentence_and_one_that_comes_later_is_noticed(
    error: Exception, says: str
) -> None:
    nvml = FakeNvml(Gpu(0), init=error)
    source = NvmlSource(nvml)
    with pytest.raises(SourceError, match=says):
        source.read()
    assert source.poll(0) == []
    nvml.init = None
    assert len(source.read().gpus) == 1


def test_a_driver_that_was_unloaded_is_initialised_again() -> None:
    nvml = FakeNvml(Gpu(0))
    source = NvmlSource(nvml)
    source.read()
    nvml.init = pynvml.NVMLError_Uninitialized()
    with pytest.raises(SourceError, match="NVML does not answer"):
        source.read()
    nvml.init = None
    assert len(source.read().gpus) == 1
    assert nvml.inits == 2


def test_a_gpu_that_is_added_is_noticed() -> None:
    nvml = FakeNvml(Gpu(0))
    source = NvmlSource(nvml)
    source.read()
    nvml.gpus.append(Gpu(1))
    assert [gpu.uuid for gpu in source.read().gpus] == ["GPU-0", "GPU-1"]


def test_usable_memory_is_what_the_driver_does_not_keep() -> None:
    memory = SimpleNamespace(total=80 * GIB, reserved=512 * 2**20)
    assert read(Gpu(0, memory=memory)).gpus[0].mem_mib == 80 * 1024 - 512


@pytest.mark.parametrize("raw", ["00000000:07:00.0", b"00000000:07:00.0", "0000:07:00.0"])
def test_bus_ids_are_written_as_linux_does(raw: str | bytes) -> None:
    assert bus_id(raw) == "0000:07:00.0"


def test_a_bus_of_a_far_domain_keeps_it() -> None:
    assert bus_id("00010000:E1:00.0") == "10000:e1:00.0"


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_without_any_driver_the_real_module_is_a_sentence_too() -> None:
    with pytest.raises(SourceError, match="no GPU can be read"):
        NvmlSource(pynvml).read()
