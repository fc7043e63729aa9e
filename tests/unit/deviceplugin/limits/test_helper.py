"""What the helper sets, what it refuses, and what it takes for a proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from deviceplugin.limits import helper as helpers
from deviceplugin.limits.helper import Helper
from deviceplugin.limits.protocol import Hello, Limit
from tests.sim.standin_limits import MIB, Driver, make_pod

POD = "0a1b2c3d-1111-2222-3333-444455556666"
CONTAINER = "ab" * 32
GPUS = {"GPU-0": 16384 * MIB, "GPU-1": 16384 * MIB}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpu memory dmem\n")
    return tmp_path


@pytest.fixture
def driver() -> Driver:
    return Driver(dict(GPUS))


@pytest.fixture
def helper(driver: Driver, root: Path) -> Helper:
    return Helper(driver, root)


def test_it_proves_itself_on_a_group_of_its_own_beside_those_of_pods(
    helper: Helper, driver: Driver, root: Path
) -> None:
    pod = make_pod(root, POD)
    assert helper.answer(Hello()) == ""
    assert list(driver.limits) == [str(pod.parent / helpers.TRIAL)]
    assert not (pod.parent / helpers.TRIAL).exists()


@pytest.mark.parametrize("fault", ["permission", "symbol", "deaf"])
def test_a_driver_that_sets_nothing_proves_nothing(helper: Helper, driver: Driver, root: Path, fault: str) -> None:
    make_pod(root, POD)
    driver.fault = fault
    assert helper.answer(Hello())
    assert helper.answer(Limit(pod=POD, mib={"GPU-0": 4096}))


def test_what_lacks_is_said(helper: Helper, driver: Driver, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "PROVED_S", 0.0)
    assert helper.answer(Hello()) == f"there is no control group of a pod below {root}"
    pod = make_pod(root, POD, nested=False)
    assert helper.answer(Hello()).startswith("the kernel's controller dmem does not reach")
    (pod / "dmem.max").touch()
    driver.total = {}
    assert helper.answer(Hello()) == "no GPU of this machine can be limited"
    (root / "cgroup.controllers").unlink()
    assert helper.answer(Hello()) == f"{root} has no cgroup v2"


def test_a_proof_counts_for_a_while(helper: Helper, driver: Driver, root: Path) -> None:
    make_pod(root, POD)
    assert helper.answer(Hello()) == ""
    driver.fault = "permission"
    assert helper.answer(Hello()) == ""


def test_the_pod_is_limited_on_each_gpu(helper: Helper, driver: Driver, root: Path) -> None:
    pod = make_pod(root, POD)
    assert helper.answer(Limit(pod=POD, mib={"GPU-0": 4096, "GPU-1": 2048})) == ""
    assert driver.limits == {str(pod): {"GPU-0": 4096 * MIB, "GPU-1": 2048 * MIB}}


def test_or_one_container_of_it(helper: Helper, driver: Driver, root: Path) -> None:
    group = make_pod(root, POD, nested=False) / f"cri-containerd-{CONTAINER}.scope"
    group.mkdir()
    assert helper.answer(Limit(pod=POD, container=CONTAINER, mib={"GPU-0": 4096})) == ""
    assert driver.limits == {str(group): {"GPU-0": 4096 * MIB}}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (Limit(pod=POD, mib={"GPU-9": 1}), "this machine has no GPU GPU-9 that can be limited"),
        (Limit(pod=POD, mib={"GPU-0": 16385}), "16385 MiB is more than GPU GPU-0 has (16384 MiB)"),
        (Limit(pod="1" * 32, mib={"GPU-0": 1}), "has no such control group"),
        (Limit(pod=POD, container=CONTAINER, mib={"GPU-0": 1}), "has no such control group"),
    ],
    ids=["another GPU", "too much", "no such pod", "no such container"],
)
def test_anything_else_is_refused(helper: Helper, driver: Driver, root: Path, asked: Limit, why: str) -> None:
    make_pod(root, POD)
    assert why in helper.answer(asked)
    assert driver.limits == {}


def test_a_limit_that_the_kernel_does_not_show_does_not_count(helper: Helper, driver: Driver, root: Path) -> None:
    make_pod(root, POD)
    driver.fault = "misc"
    assert "does not show the limit of 4096 MiB" in helper.answer(Limit(pod=POD, mib={"GPU-0": 4096}))


def test_a_link_is_no_control_group(helper: Helper, root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    above = root / "kubepods.slice"
    above.mkdir()
    (above / f"kubepods-pod{POD.replace('-', '_')}.slice").symlink_to(elsewhere)
    assert "has no such control group" in helper.answer(Limit(pod=POD, mib={"GPU-0": 1}))


def test_each_gpu_must_show_its_limit(helper: Helper, driver: Driver, root: Path) -> None:
    """The row of one GPU proved that of another with as much."""
    pod = make_pod(root, POD)
    equal = Limit(pod=POD, mib={"GPU-0": 4096, "GPU-1": 4096})
    assert helper.answer(equal) == ""
    driver.fault = "misc"
    (pod / "dmem.max").write_text(f"nvidia/GPU-0/vidmem {4096 * MIB}\nnvidia/GPU-1/vidmem max\n")
    assert "does not show the limit of 4096 MiB on 2 GPUs" in helper.answer(equal)
