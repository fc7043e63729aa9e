"""Memory limits are set through nvidia-ml-py's real binding, and what the driver refuses is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.deviceplugin.nvml.test_binding import UUIDS, library, older, told

__all__ = ["library", "older"]

GROUP = "/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice"
SET = f"""
from deviceplugin.limits.nvml import NvmlDriver
from deviceplugin.limits.protocol import LimitError
driver = NvmlDriver(pynvml)
try:
    driver.set({UUIDS[1]!r}, {GROUP!r}, 4096 << 20)
    limit = driver.get({UUIDS[1]!r}, {GROUP!r})
    tell(limit.hard >> 20)
except LimitError as error:
    tell(str(error))
"""


def test_a_limit_is_set_and_read(library: Path) -> None:
    assert told(library, SET, GROUP=GROUP) == [4096]


@pytest.mark.parametrize(
    ("code", "said"),
    [("4", "it needs root and SYS_ADMIN"), ("3", "does not limit"), ("2", "does not limit"), ("15", "does not limit")],
    ids=["no permission", "not supported", "invalid argument", "GPU is lost"],
)
def test_what_the_driver_refuses_is_said(library: Path, code: str, said: str) -> None:
    (answer,) = told(library, SET, GROUP=GROUP, SET=code)
    assert said in answer


def test_a_group_that_is_gone_and_a_gpu_that_is_not_there(library: Path) -> None:
    (answer,) = told(library, SET, GROUP="/elsewhere")
    assert "does not limit" in answer
    (answer,) = told(library, SET.replace(UUIDS[1], "GPU-x"), GROUP=GROUP)
    assert answer == "this machine has no GPU GPU-x"


def test_an_older_driver_lacks_the_call(older: Path) -> None:
    (answer,) = told(older, SET, GROUP=GROUP)
    assert answer == "the driver lacks nvmlDeviceSetMemoryLimits_v1: limits need driver 615 or later"


def test_gpus_in_mig_mode_cannot_be_limited(library: Path) -> None:
    script = "from deviceplugin.limits.nvml import NvmlDriver\ntell(NvmlDriver(pynvml).memory())"
    (memory,) = told(library, script, MIG="2")
    assert memory == {uuid: 143771 << 20 for uuid in UUIDS if uuid != UUIDS[2]}
