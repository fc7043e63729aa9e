"""Instances are made, found and destroyed through NVML's own calls, and what the driver refuses is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from deviceplugin.partitioner.nvml import NvmlDriver
from deviceplugin.partitioner.protocol import Device, PartitionError
from protos.contract import mig
from tests.unit.deviceplugin.fake_mig import OFF, a_gpu
from tests.unit.deviceplugin.partitioner.cut_nvml import CutNvml

GPU = "GPU-0"
SMALL, LARGE = mig.Place(GPU, "1g.10gb", 3, 1), mig.Place(GPU, "3g.40gb", 4, 4)


def a_driver(nvml: CutNvml, *given: str) -> NvmlDriver:
    return NvmlDriver(nvml, given or ("all",))


def test_the_kinds_have_the_names_places_and_numbers_that_the_driver_tells() -> None:
    (kinds,) = a_driver(CutNvml(a_gpu())).gpus().values()
    assert {kind.profile: (kind.mem_mib, kind.size, kind.starts, kind.most) for kind in kinds} == {
        "1g.10gb": (9728, 1, tuple(range(7)), 7),
        "1g.10gb+me": (9728, 1, tuple(range(7)), 1),
        "2g.20gb": (19968, 2, (0, 2, 4), 3),
        "3g.40gb": (40192, 4, (0, 4), 2),
        "7g.80gb": (80896, 8, (0,), 1),
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [("all", [GPU, "GPU-2"]), ("2", ["GPU-2"]), ("GPU-0", [GPU]), ("1", []), ("9", []), ("GPU-9", [])],
)
def test_only_gpus_in_mig_mode_that_are_given_over_are_cut(given: str, expected: list[str]) -> None:
    nvml = CutNvml(a_gpu(0), a_gpu(1, mig=OFF), a_gpu(2))
    assert list(a_driver(nvml, given).gpus()) == expected


def test_an_instance_is_made_found_and_destroyed() -> None:
    nvml = CutNvml(a_gpu())
    driver = a_driver(nvml)
    gi = driver.make(LARGE)
    (half,) = driver.found(GPU)
    assert (half.place, half.gi, half.device) == (LARGE, gi, None)
    device = driver.complete(LARGE, gi)
    assert device == Device(f"MIG-{gi}", gi, 0)
    assert nvml.made[gi].parts == [2]
    driver.complete(SMALL, driver.make(SMALL))
    assert {each.place.name: each.device.uuid for each in driver.found(GPU) if each.device} == {
        LARGE.name: "MIG-1",
        SMALL.name: "MIG-2",
    }
    driver.destroy(GPU, gi)
    assert [each.place for each in driver.found(GPU)] == [SMALL]


@pytest.mark.parametrize(
    ("call", "error", "act", "why"),
    [
        ("make", pynvml.NVMLError_InsufficientResources, lambda d: d.make(SMALL), "does not make GPU-0/1g.10gb"),
        ("make", pynvml.NVMLError_NoPermission, lambda d: d.make(SMALL), "may not make .* needs root and SYS_ADMIN"),
        ("complete", pynvml.NVMLError_Unknown, lambda d: d.complete(SMALL, d.make(SMALL)), "compute instance of GPU-0"),
        ("destroy", pynvml.NVMLError_InUse, lambda d: d.destroy(GPU, d.make(SMALL)), "does not destroy instance 1"),
        ("list", pynvml.NVMLError_GpuIsLost, lambda d: d.found(GPU), "does not list instances"),
        ("profile", pynvml.NVMLError_Unknown, lambda d: d.gpus(), "nvmlDeviceGetGpuInstanceProfileInfo"),
    ],
)
def test_what_the_driver_refuses_is_said(
    call: str, error: type[Exception], act: Callable[[NvmlDriver], Any], why: str
) -> None:
    nvml = CutNvml(a_gpu())
    nvml.fails[call] = error()
    with pytest.raises(PartitionError, match=why):
        act(a_driver(nvml))


@pytest.mark.parametrize(
    ("lacking", "act", "why"),
    [
        ("nvmlDeviceCreateGpuInstanceWithPlacement", lambda d: d.make(SMALL), "it lacks nvmlDeviceCreateGpuInstance"),
        ("nvmlGpuInstanceDestroy", lambda d: d.destroy(GPU, d.make(SMALL)), "it lacks nvmlGpuInstanceDestroy"),
    ],
)
def test_a_module_that_lacks_a_call_is_named(lacking: str, act: Callable[[NvmlDriver], Any], why: str) -> None:
    with pytest.raises(PartitionError, match=why):
        act(a_driver(CutNvml(a_gpu(), lacking=frozenset([lacking]))))


@pytest.mark.parametrize(
    "lacking", ["nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetGpuInstancePossiblePlacements"]
)
def test_a_driver_that_tells_no_places_offers_nothing(lacking: str) -> None:
    assert dict(a_driver(CutNvml(a_gpu(), lacking=frozenset([lacking]))).gpus()) == {GPU: ()}


def test_a_gpu_that_is_gone_is_named() -> None:
    with pytest.raises(PartitionError, match="this machine has no GPU GPU-7"):
        a_driver(CutNvml(a_gpu())).found("GPU-7")
