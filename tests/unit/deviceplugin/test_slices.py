"""NVIDIA's sharing configuration."""

from pathlib import Path

import pytest

from deviceplugin import slices
from deviceplugin.mig.strategy import Strategy
from deviceplugin.slices import TimeSlicing
from protos.contract import names
from protos.files import FileError

WHOLE, SHARED = names.WHOLE_GPU, names.SHARED_GPU


def parse(sharing: str) -> TimeSlicing:
    return slices.parse(f"version: v1\n{sharing}".encode(), names.Resources(), 100)


def slicing(resource: str, more: str = "") -> str:
    return f"sharing: {{timeSlicing: {{{more} resources: [{{{resource}}}]}}}}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", TimeSlicing()),
        ("flags: {migStrategy: none}\nsharing: {}", TimeSlicing()),
        ("flags: {migStrategy: null, failOnInitError: true}", TimeSlicing()),
        ("flags: {migStrategy: mixed}", TimeSlicing(mig=Strategy.MIXED)),
        (slicing("name: nvidia.com/gpu, replicas: 4"), TimeSlicing({WHOLE: 4})),
        (slicing("name: gpu, replicas: 4"), TimeSlicing({WHOLE: 4})),
        (slicing("name: gpu, replicas: 4, devices: all"), TimeSlicing({WHOLE: 4})),
        (slicing("name: gpu, replicas: 4", "renameByDefault: true,"), TimeSlicing({SHARED: 4})),
        (slicing("name: gpu, replicas: 4, rename: nvidia.com/gpu.shared"), TimeSlicing({SHARED: 4})),
        (slicing("name: gpu, replicas: 4, rename: gpu.shared"), TimeSlicing({SHARED: 4})),
        (slicing("name: gpu, replicas: 4", "failRequestsGreaterThanOne: true,"), TimeSlicing({WHOLE: 4}, single=True)),
    ],
)
def test_time_slicing(text: str, expected: TimeSlicing) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (slicing("name: gpu, replicas: 1"), "Expected `int` >= 2.*replicas"),
        (slicing("name: gpu, replicas: 101"), "101 replicas of nvidia.com/gpu: a GPU has 100 slices"),
        (slicing("name: gpu"), "missing required field `replicas`"),
        (slicing("name: gpu, replicas: 2, size: 3"), "unknown field `size`"),
        (slicing("name: mig-1g.10gb, replicas: 2"), "nvidia.com/mig-1g.10gb cannot be time-sliced"),
        (slicing("name: gpu, replicas: 2, devices: [0]"), r"devices is \[0\]: expected \"all\""),
        (slicing("name: gpu, replicas: 2, rename: my/gpu"), "renamed to my/gpu: expected nvidia.com/gpu.shared"),
        (slicing("name: gpu, replicas: 2}, {name: gpu, replicas: 3"), "nvidia.com/gpu is listed twice"),
        ("sharing: {mps: {resources: []}}", "sharing.mps is not served"),
        ("sharing: [", "while parsing"),
    ],
)
def test_what_cannot_be_served_is_an_error(text: str, says: str) -> None:
    with pytest.raises(FileError, match=says):
        parse(text)


def test_another_version_is_an_error() -> None:
    with pytest.raises(FileError, match="version is 'v2': expected 'v1'"):
        slices.parse(b"version: v2", names.Resources(), 100)


def test_a_file_that_is_no_text_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"version: \xff")
    with pytest.raises(FileError, match=r"config\.yaml: expected text in UTF-8"):
        slices.read(tmp_path / "config.yaml", names.Resources(), 100)


def test_a_whole_configuration_file_as_nvidia_documents_it() -> None:
    text = """
version: v1
flags:
  migStrategy: none
  failOnInitError: false
  plugin: {passDeviceSpecs: false, deviceListStrategy: envvar, deviceIDStrategy: uuid}
resources:
  gpus: [{pattern: "*", name: nvidia.com/gpu}]
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources: [{name: nvidia.com/gpu, replicas: 10, devices: all}]
"""
    assert slices.parse(text.encode(), names.Resources(), 100) == TimeSlicing({SHARED: 10}, single=True)


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"none\.yaml: cannot be read \(No such file"):
        slices.read(tmp_path / "none.yaml", names.Resources(), 100)


def test_a_strategy_that_is_none_is_an_error() -> None:
    with pytest.raises(FileError, match="migStrategy"):
        parse("flags: {migStrategy: both}")
