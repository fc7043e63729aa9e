"""What Allocate adds for a part of a GPU that MPS serves, and what MPS means for the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from deviceplugin import devices
from deviceplugin.devices import Sharing
from deviceplugin.machine import MpsLevel
from deviceplugin.metrics import Metrics
from deviceplugin.mps import answers, exchange, level
from deviceplugin.mps.answers import Pipes
from deviceplugin.mps.exchange import Phase, Served, State
from deviceplugin.mps.level import MpsSource
from protos.contract.allocation import Share
from protos.contract.isolation import Isolation
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from tests.unit.deviceplugin.builders import a_machine, an_inventory
from tests.unit.deviceplugin.mps.conftest import a_holder
from tests.unit.deviceplugin.test_cdi import Fixed


def added(*, own_limits: bool, mem_mib: int = 4096, percent: int = 25) -> api.ContainerAllocateResponse:
    answer = api.ContainerAllocateResponse(envs={"A": "b"})
    holder = a_holder(mem_mib=mem_mib, percent=percent)
    answers.add(answer, Pipes(folder="/f", shm="/s", own_limits=own_limits, holder=holder))
    return answer


def test_with_namespaces_a_container_sees_its_own_folder_and_has_no_limits_of_its_own_to_change() -> None:
    answer = added(own_limits=False)
    assert dict(answer.envs) == {"A": "b", "CUDA_MPS_PIPE_DIRECTORY": "/f"}
    assert [(m.host_path, m.container_path, m.read_only) for m in answer.mounts] == [
        ("/f", "/f", False),
        ("/s", "/dev/shm", False),
    ]


def test_without_namespaces_the_environment_limits_it() -> None:
    assert dict(added(own_limits=True).envs) == {
        "A": "b",
        "CUDA_MPS_PIPE_DIRECTORY": "/f",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
    }
    assert set(added(own_limits=True, mem_mib=0, percent=0).envs) == {"A", "CUDA_MPS_PIPE_DIRECTORY"}


@pytest.mark.parametrize(
    ("slices", "per_gpu", "percent"), [(0, 100, 0), (25, 100, 25), (1, 1000, 1), (3, 7, 43), (7, 7, 100)]
)
def test_slices_are_a_part_of_the_threads(slices: int, per_gpu: int, percent: int) -> None:
    inventory = an_inventory(16, sharing=Sharing(slices_per_gpu=per_gpu))
    share = Share("GPU-0", 0, 4, slices)
    found = answers.holder("p", "main", share, inventory, mps=True)
    assert (found.mem_mib, found.percent, found.mps) == (4096, percent, True)


NOW = 1000.0
"""Seconds since boot."""


def a_state(*phases: Phase, protocol: Literal[2, 3] = 3, age: float = 0.0, now: float = NOW) -> State:
    gpus = {f"GPU-{i}": Served(phase=phase) for i, phase in enumerate(phases)}
    return State(v=1, beat=now - age, protocol=protocol, gpus=gpus)


@pytest.mark.parametrize(
    ("state", "troubles"),
    [
        (None, ["", ""]),
        (a_state("serving"), ["", ""]),
        (a_state("starting", "yielded"), ["", ""]),
        (a_state("wedged", "blocked"), ["mps server does not answer", "mps cannot serve"]),
        (a_state("serving", age=60), ["mps component does not answer", ""]),
    ],
)
def test_a_gpu_is_sick_while_mps_cannot_serve_it(state: State | None, troubles: list[str]) -> None:
    marked = level.marked(a_machine(16, 16), state, NOW)
    assert [gpu.trouble for gpu in marked.gpus] == troubles


def test_a_gpu_that_has_trouble_of_its_own_keeps_it() -> None:
    marked = level.marked(a_machine(16, trouble="nvml-x"), a_state("wedged"), NOW)
    assert marked.gpus[0].trouble == "nvml-x"


@pytest.mark.parametrize(
    ("state", "compute", "why"),
    [
        (None, "", "no MPS component"),
        (a_state("serving", "serving", age=60), "", "does not answer"),
        (a_state("serving"), "", "GPU 1 is not given over to MPS"),
        (a_state("wedged", "yielded"), "", "serves no GPU"),
        (a_state("serving", "serving", protocol=2), "cooperative", "a container can take off"),
        (a_state("serving", "yielded"), "mps", ""),
    ],
)
def test_the_level_is_what_holds_for_every_gpu_of_the_node(state: State | None, compute: str, why: str) -> None:
    found = level.level(state, a_machine(16, 16), NOW)
    assert found.compute == compute
    assert why in found.why
    assert bool(found.why) == (compute != "mps")


def test_a_metric_tells_the_phase_of_each_gpu_that_is_given_over() -> None:
    metrics, machine = Metrics(), a_machine(16, 16, 16)

    def told(state: State | None, now: float = NOW) -> dict[str, float]:
        metrics.count_mps(level.marked(machine, state, now).mps)
        samples = (sample for family in metrics.mps_gpus.collect() for sample in family.samples)
        return {sample.labels["phase"]: sample.value for sample in samples}

    state = a_state("serving", "wedged", "serving")
    assert told(state) == {"serving": 2, "wedged": 1}
    assert told(a_state("serving")) == {"serving": 1}, "GPUs that are not given over do not count"
    assert told(state, NOW + level.SILENT_S + 1) == {"silent": 3}
    assert told(None) == {}


def test_a_gpu_in_mig_mode_does_not_count() -> None:
    machine = a_machine(16, 16)
    with_mig = level.marked(a_machine(16, mig=True), a_state(), NOW)
    assert with_mig.mps == MpsLevel(why="MPS serves no GPU now")
    assert machine.mps is None


def test_the_inventory_tells_the_level_only_where_mps_is_set_up() -> None:
    machine = a_machine(16)
    assert devices.inventory(machine, {}, Sharing()).isolation is None
    capped = level.marked(machine, a_state("serving"), NOW)
    assert devices.inventory(capped, {}, Sharing()).isolation == Isolation(compute="mps")


def test_memory_and_compute_are_isolated_by_different_means() -> None:
    driver, none = Isolation(memory="driver", why="nothing caps compute"), Isolation(why="driver 580 is older than 615")
    assert level.joined(driver, None) == driver
    assert level.joined(None, None) is None
    assert level.joined(driver, MpsLevel("mps")) == Isolation(memory="driver", compute="mps")
    assert level.joined(driver, MpsLevel(why="x")) == Isolation(memory="driver", why="x")
    assert level.joined(none, MpsLevel("mps")) == Isolation(compute="mps", why=none.why)
    assert level.joined(none, MpsLevel(why="x")) == Isolation(why=f"{none.why}; x")


def test_a_source_reads_the_components_file_each_time(tmp_path: Path) -> None:
    source = MpsSource(Fixed(), tmp_path)
    assert source.trouble is None
    assert source.poll(1.0) == Fixed().poll(1.0)
    assert [gpu.trouble for gpu in source.read().gpus] == ["", ""]
    exchange.write(tmp_path, a_state("serving", "wedged", now=exchange.now()))
    assert [gpu.trouble for gpu in source.read().gpus] == ["", "mps server does not answer"]
    (tmp_path / exchange.STATE).write_text("{")
    machine = source.read()
    assert [gpu.trouble for gpu in machine.gpus] == ["", ""]
    assert machine.mps == MpsLevel(why="no MPS component runs on this node")
