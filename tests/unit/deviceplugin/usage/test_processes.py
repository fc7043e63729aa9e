"""What the driver tells of processes: a fake of pynvml, unkind ones included, and fake profiles."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from deviceplugin.machine import SourceError
from deviceplugin.usage.processes import FakeProcesses, NvmlProcesses, Process
from protos.files import FileError
from tests.unit.deviceplugin.fake_mig import Device, MigNvml, a_gpu
from tests.unit.deviceplugin.fake_nvml import FakeNvml, Gpu

MIB = 2**20


class Driver(FakeNvml):
    """A fake driver that also lists processes; `lists` by name of the call: a list, or an error."""

    def __init__(self, *gpus: Gpu, init: Exception | None = None) -> None:
        super().__init__(*gpus, init=init)
        self.lists: dict[str, dict[int, Any]] = {}
        self.used: Any = []
        self.asked: list[int] = []

    def __getattr__(self, name: str) -> Any:
        if "RunningProcesses" not in name:
            return super().__getattr__(name)
        answers = self.__dict__["lists"].get(name, {})

        def call(gpu: Gpu) -> Any:
            found = answers.get(gpu.index, answers.get(-1, []))
            if isinstance(found, Exception):
                raise found
            return found

        return call

    def nvmlDeviceGetProcessUtilization(self, gpu: Gpu, since: int) -> Any:
        self.asked.append(since)
        if isinstance(self.used, Exception):
            raise self.used
        return self.used


def a_process(pid: int, mib: int | None) -> Any:
    return SimpleNamespace(pid=pid, usedGpuMemory=None if mib is None else mib * MIB)


def took(pid: int, percent: int, time: int) -> Any:
    return SimpleNamespace(pid=pid, smUtil=percent, timeStamp=time)


COMPUTE, GRAPHICS, MPS = (f"nvmlDeviceGet{kind}RunningProcesses" for kind in ("Compute", "Graphics", "MPSCompute"))


def test_a_process_of_several_lists_is_counted_once() -> None:
    driver = Driver(Gpu(0))
    driver.lists = {
        COMPUTE: {0: [a_process(1, 100), a_process(2, None)]},
        GRAPHICS: {0: [a_process(1, 120), a_process(3, 5)]},
        MPS: {0: [a_process(2, 70), a_process(3, None)]},
    }
    (sample,) = NvmlProcesses(driver).read()
    assert set(sample.processes) == {Process(1, 120 * MIB), Process(2, 70 * MIB), Process(3, 5 * MIB)}


@pytest.mark.parametrize("error", [pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported, AttributeError])
def test_what_driver_or_library_lack_leaves_only_its_own_part_unknown(error: type[Exception]) -> None:
    driver = Driver(Gpu(0))
    driver.lists = {
        COMPUTE: {0: error()},
        f"{COMPUTE}_v2": {0: [a_process(1, 100)]},
        GRAPHICS: {0: error()},
        f"{GRAPHICS}_v2": {0: error()},
        MPS: {0: error()},
        f"{MPS}_v2": {0: error()},
    }
    driver.used = error()
    (sample,) = NvmlProcesses(driver).read()
    assert (sample.processes, sample.sm, sample.trouble) == ((Process(1, 100 * MIB),), None, "")
    driver.lists[f"{COMPUTE}_v2"] = {0: error()}
    (sample,) = NvmlProcesses(driver).read()
    assert "does not tell" in sample.trouble


def test_an_error_of_one_gpu_is_its_own() -> None:
    driver = Driver(Gpu(0), Gpu(1), Gpu(2, uuid=pynvml.NVMLError_GpuIsLost()))
    driver.lists = {COMPUTE: {0: pynvml.NVMLError_GpuIsLost(), 1: [a_process(1, 1)]}}
    lost, good = NvmlProcesses(driver).read()
    assert "NVML does not tell its processes" in lost.trouble
    assert (good.uuid, good.processes, good.trouble) == ("GPU-1", (Process(1, MIB),), "")


def test_no_driver_is_an_error_until_there_is_one() -> None:
    driver = Driver(Gpu(0), init=pynvml.NVMLError_DriverNotLoaded())
    processes = NvmlProcesses(driver)
    with pytest.raises(SourceError, match="not loaded"):
        processes.read()
    driver.init = None
    assert len(processes.read()) == 1
    driver.init = pynvml.NVMLError_Unknown()
    with pytest.raises(SourceError, match="does not answer"):
        processes.read()
    processes.close()


def test_use_is_asked_for_since_the_last_sample_and_nonsense_is_left_out() -> None:
    driver = Driver(Gpu(0))
    processes = NvmlProcesses(driver)
    driver.used = [took(1, 10, 1000), took(1, 30, 2000), took(2, 5, 1500), took(3, 4_000_000, 1600)]
    assert processes.read()[0].sm == {1: 0.3, 2: 0.05}
    driver.used = [took(1, 50, 2000), took(2, 20, 2500)]  # the first is old
    assert processes.read()[0].sm == {2: 0.2}
    driver.used = pynvml.NVMLError_NotFound()
    assert processes.read()[0].sm == {}
    assert driver.asked == [0, 2000, 2500]


def test_processes_of_a_fake_profile_follow_its_file(tmp_path: Path) -> None:
    file = tmp_path / "gpus.yaml"
    file.write_text(
        "gpus:\n"
        "  - {uuid: GPU-a, processes: [{pid: 7, memMiB: 100, sm: 25}, {pid: 8}]}\n"
        "  - {uuid: GPU-b, processes: [{pid: 9, memMiB: 1}]}\n"
        "  - {uuid: GPU-c}\n"
        "  - {uuid: GPU-d, health: gone, processes: [{pid: 10}]}\n"
    )
    a, b, c = FakeProcesses(str(file), "n").read()
    assert (a.processes, a.sm) == ((Process(7, 100 * MIB), Process(8, None)), {7: 0.25})
    assert (b.processes, b.sm) == ((Process(9, MIB),), None)
    assert (c.processes, c.sm) == ((), {})


@pytest.mark.parametrize("process", ["{pid: 0}", "{pid: 1, sm: 101}", "{memMiB: 1}", "{pid: 1, mem: 1}"])
def test_a_process_that_cannot_be_is_refused(tmp_path: Path, process: str) -> None:
    file = tmp_path / "gpus.yaml"
    file.write_text(f"gpus: [{{processes: [{process}]}}]\n")
    with pytest.raises(FileError):
        FakeProcesses(str(file), "n")


class SplitDriver(MigNvml, Driver):
    """A fake driver with GPUs in MIG mode."""

    def __getattr__(self, name: str) -> Any:
        if "RunningProcesses" not in name:
            return MigNvml.__getattr__(self, name)

        def call(device: Gpu | Device) -> Any:
            if isinstance(device, Device):
                return device.get("processes") if name == COMPUTE else []
            return [a_process(1, 100), a_process(2, 200)] if name == COMPUTE else []

        return call


def test_processes_on_mig_instances_are_listed_for_the_instance_and_for_the_gpu() -> None:
    one = Device("MIG-a", processes=[a_process(1, 100)])
    two = Device("MIG-b", processes=pynvml.NVMLError_NoPermission())
    nvml = SplitDriver(a_gpu(0, one, None, two))
    nvml.used = pynvml.NVMLError_NotSupported()
    card, first, second = NvmlProcesses(nvml).read()
    assert (card.uuid, [process.pid for process in card.processes]) == ("GPU-0", [1, 2])
    assert (first.uuid, first.processes, first.sm) == ("MIG-a", (Process(1, 100 * MIB),), None)
    assert (second.uuid, second.processes) == ("MIG-b", ())


def test_instances_that_cannot_be_enumerated_cost_their_gpu_nothing() -> None:
    nvml = SplitDriver(a_gpu(0, devices=pynvml.NVMLError_Unknown()))
    assert [sample.uuid for sample in NvmlProcesses(nvml).read()] == ["GPU-0"]


def test_a_fake_instance_has_processes(tmp_path: Path) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_text(
        "gpus: [{health: mig, instances: [{profile: 1g.10gb, uuid: MIG-a, processes: [{pid: 7, memMiB: 5}]}]}]"
    )
    _, found = FakeProcesses(str(path), "n").read()
    assert (found.uuid, found.processes) == ("MIG-a", (Process(7, 5 * MIB),))
