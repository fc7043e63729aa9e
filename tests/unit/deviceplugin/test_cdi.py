"""Which GPUs the CDI specifications of a node name, whatever lies in their folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from deviceplugin.cdi import CdiSource
from deviceplugin.machine import Machine, MemoryLimit, Xid
from protos.contract import bounds
from tests.unit.deviceplugin.builders import a_gpu, a_split_machine

KIND = "nvidia.com/gpu"


class Fixed:
    """A source that always shows the same two GPUs."""

    period, trouble = 7.0, None

    def read(self) -> Machine:
        return Machine(gpus=(a_gpu(0), a_gpu(1)))

    def poll(self, timeout: float) -> list[Xid]:
        return [Xid("GPU-1", 79)] if timeout else []

    def memory_limit(self, uuid: str, cgroup: str) -> MemoryLimit | None:
        return MemoryLimit(1) if uuid == "GPU-1" else None

    def close(self) -> None: ...


def a_spec(*devices: str | int, kind: str = KIND) -> dict[str, object]:
    edits = {"deviceNodes": [{"path": "/dev/nvidia0"}]}
    return {"cdiVersion": "0.6.0", "kind": kind, "devices": [{"name": d, "containerEdits": edits} for d in devices]}


def trouble(source: CdiSource) -> list[str]:
    return [gpu.trouble for gpu in source.read().gpus]


@pytest.fixture
def source(tmp_path: Path) -> CdiSource:
    for folder in ("etc", "run"):
        (tmp_path / folder).mkdir()
    return CdiSource(Fixed(), KIND, (tmp_path / "etc", tmp_path / "run", tmp_path / "none"))


def test_a_gpu_is_offered_once_some_file_of_some_folder_names_it(source: CdiSource) -> None:
    assert trouble(source) == ["no-cdi-device", "no-cdi-device"]
    (source.folders[0] / "a.json").write_text(json.dumps(a_spec("GPU-1", "all")))
    assert trouble(source) == ["no-cdi-device", ""]
    (source.folders[1] / "b.yaml").write_text(yaml.safe_dump(a_spec(0, 1, "GPU-0")))
    assert trouble(source) == ["", ""]


def test_a_changed_file_is_read_again_and_a_removed_one_forgotten(source: CdiSource) -> None:
    file = source.folders[1] / "nvidia.yaml"
    file.write_text(yaml.safe_dump(a_spec("GPU-0", "GPU-1")))
    assert trouble(source) == ["", ""]
    file.write_text(yaml.safe_dump(a_spec("GPU-1")))
    assert trouble(source) == ["no-cdi-device", ""]
    file.unlink()
    assert trouble(source) == ["no-cdi-device", "no-cdi-device"]


def test_a_file_that_stays_is_read_once(source: CdiSource, monkeypatch: pytest.MonkeyPatch) -> None:
    (source.folders[0] / "a.json").write_text(json.dumps(a_spec("GPU-0", "GPU-1")))
    assert trouble(source) == ["", ""]
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("read again"))
    assert trouble(source) == ["", ""]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("other-kind.json", json.dumps(a_spec("GPU-0", kind="management.nvidia.com/gpu"))),
        ("spec.txt", json.dumps(a_spec("GPU-0"))),
        ("broken.json", "{"),
        ("broken.yaml", "kind: [\n"),
        ("list.yaml", "- 1"),
        ("empty.yaml", ""),
        ("not-utf-8.yaml", b"kind: \xff"),
        ("no-devices.json", json.dumps({"kind": KIND, "devices": None})),
        ("deep.json", "[" * 100_000),
        ("deep.yaml", "[" * 5_000),
        ("long.json", json.dumps(a_spec("GPU-0")) + " " * bounds.CDI_SPEC_BYTES.most),
    ],
)
def test_a_file_that_names_no_gpu_of_ours_harms_no_other(source: CdiSource, name: str, text: str | bytes) -> None:
    (source.folders[0] / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    (source.folders[0] / "z.json").write_text(json.dumps(a_spec("GPU-1")))
    assert trouble(source) == ["no-cdi-device", ""]


def test_a_link_to_nowhere_and_a_folder_are_no_specifications(source: CdiSource) -> None:
    (source.folders[0] / "a.json").symlink_to("/nowhere")
    (source.folders[0] / "b.json").mkdir()
    assert trouble(source) == ["no-cdi-device", "no-cdi-device"]


def test_trouble_of_the_gpu_itself_comes_first_and_poll_is_the_sources() -> None:
    class Sick(Fixed):
        def read(self) -> Machine:
            return Machine(gpus=(a_gpu(0, trouble="nvml-lost"),))

    source = CdiSource(Sick(), KIND, ())
    assert trouble(source) == ["nvml-lost"]
    assert (source.period, source.poll(1.0)) == (7.0, [Xid("GPU-1", 79)])
    assert source.memory_limit("GPU-1", "/sys/fs/cgroup/some") == MemoryLimit(1)


def test_an_instance_needs_a_device_and_its_gpu_none(tmp_path: Path) -> None:
    class Split(Fixed):
        def read(self) -> Machine:
            return a_split_machine("1g.10gb", "1g.10gb")

    (tmp_path / "nvidia.yaml").write_text(yaml.safe_dump(a_spec("0:0", "MIG-0-0", "all")))
    assert trouble(CdiSource(Split(), KIND, (tmp_path,))) == ["", "", "no-cdi-device"]
