"""The plugin's settings."""

from pathlib import Path
from typing import Any

import pytest

from deviceplugin import settings
from deviceplugin.isolation.levels import Mode
from deviceplugin.mig.strategy import Strategy
from deviceplugin.settings import Settings
from deviceplugin.slices import TimeSlicing
from protos.contract.shared_settings import SettingsError


def test_ignored_errors() -> None:
    assert settings.xids("13, 31,") == {13, 31}
    assert settings.xids("") == frozenset()
    with pytest.raises(SettingsError, match="'13;31' is no list of XIDs"):
        settings.xids("13;31")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"node_name": ""}, "--node-name is empty: expected the name of this node"),
        ({"slices_per_gpu": 0}, "--slices-per-gpu is 0: expected 1 or more"),
        ({"cool_down_s": -1.0}, "--cool-down is -1.0: expected 0 or more"),
        ({"metrics_port": 70000}, "--metrics-port is 70000: expected a port"),
        ({"serve_pod_resources": Path("a.sock")}, "--serve-pod-resources is a.sock: expected an absolute path"),
        ({"serve_pod_resources": Path("/" + 106 * "a")}, "expected an absolute path of at most 106 bytes"),
        (
            {"serve_pod_resources": Path("/k.sock"), "pod_resources": Path("/k.sock")},
            "--serve-pod-resources is /k.sock, which is the kubelet's: expected another name",
        ),
        ({"cdi_kind": "gpu"}, "--cdi-kind is 'gpu': expected vendor/class, like nvidia.com/gpu"),
        ({"cdi_kind": "nvidia.com/gpu=all"}, "expected vendor/class"),
        ({"toolkit_version": "latest"}, "--toolkit-version is 'latest': expected a version, like 1.20.1"),
        ({"isolation": Mode.LIBRARY}, "--isolation is library: expected --library-path with your library"),
        ({"library_path": Path("libvgpu.so")}, "--library-path is libvgpu.so: expected an absolute path"),
        ({"library_dir": Path("regions")}, "--library-dir is regions: expected an absolute path"),
        ({"library_dir_mib": 0}, "--library-dir-mib is 0: expected 1 or more"),
        ({"resource_mem": "a/b", "resource_slice": "a/b"}, "expected different names"),
    ],
)
def test_a_setting_that_cannot_be_used_is_an_error_that_names_it(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        Settings(**{"node_name": "n", **bad})


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_seconds_are_a_number(seconds: float) -> None:
    with pytest.raises(SettingsError, match=r"--cool-down is .*: expected 0 or more"):
        Settings(node_name="n", cool_down_s=seconds)


@pytest.mark.parametrize(
    ("mode", "path", "used"),
    [
        (Mode.OFF, "/l/libvgpu.so", False),
        (Mode.DRIVER, "/l/libvgpu.so", False),
        (Mode.AUTO, "/l/libvgpu.so", True),
        (Mode.AUTO, None, False),
        (Mode.LIBRARY, "/l/libvgpu.so", True),
    ],
)
def test_a_library_is_used_where_the_operator_brings_it_and_wants_it(mode: Mode, path: str | None, used: bool) -> None:
    made = Settings(node_name="n", isolation=mode, library_path=Path(path) if path else None)
    assert made.limits_by_library is used


@pytest.mark.parametrize(
    ("flag", "file", "expected"),
    [("none", "mixed", "mixed"), ("single", "mixed", "single"), ("mixed", "none", "mixed"), ("none", "none", "none")],
)
def test_the_strategy_for_mig_is_that_of_the_flag_or_else_of_the_file(flag: str, file: str, expected: str) -> None:
    of_file = TimeSlicing(mig=Strategy(file))
    made = Settings(node_name="n", mig_strategy=Strategy(flag), time_slicing=of_file)
    assert (made.mig, made.sharing.mig) == (expected, expected)


def test_replicas_of_whole_gpus_and_instances_as_whole_gpus_exclude_each_other() -> None:
    replicas = TimeSlicing({"nvidia.com/gpu": 4}, mig=Strategy.SINGLE)
    with pytest.raises(SettingsError, match=r"--mig-strategy is single, .* replicas of nvidia.com/gpu"):
        Settings(node_name="n", time_slicing=replicas)
    Settings(node_name="n", time_slicing=TimeSlicing({"nvidia.com/gpu.shared": 4}, mig=Strategy.SINGLE))
