"""The partitioner of a fake machine: the kinds of a GPU, and instances that outlive the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from deviceplugin.fake import FakeSource
from deviceplugin.machine import Gpu
from deviceplugin.partitioner.fake import NAME, FakeDriver, kinds
from deviceplugin.partitioner.journal import Journal
from deviceplugin.partitioner.partitioner import Partitioner
from deviceplugin.partitioner.protocol import Answer, Held, PartitionError
from protos.contract import mig
from protos.files import FileError

PROFILE = """
defaults: {model: H100, memMiB: 81039}
gpus:
  - {uuid: GPU-whole}
  - {uuid: GPU-cut, health: mig, dynamic: true}
  - {uuid: GPU-off, dynamic: true}
  - {uuid: GPU-fixed, health: mig}
  - {uuid: GPU-sick, health: "sick:ill", dynamic: true}
"""
SMALL, OTHER, LARGE = "GPU-cut/1g.10gb@0:1", "GPU-cut/1g.10gb@1:1", "GPU-cut/3g.40gb@4:4"


def driver(folder: Path, *given: str) -> FakeDriver:
    """Of a process that has just started."""
    path = folder / "gpus.yaml"
    path.write_text(PROFILE)
    return FakeDriver(FakeSource(str(path), "node-a"), given or ("all",), folder)


def ask(folder: Path, *held: str) -> Answer:
    return Partitioner(driver(folder), Journal(folder)).answer(Held(places=held))


def place(name: str) -> mig.Place:
    found = mig.place(name)
    assert found is not None
    return found


def test_the_gpus_that_are_dynamic_and_in_mig_mode_are_given_over(tmp_path: Path) -> None:
    assert set(driver(tmp_path).gpus()) == {"GPU-cut", "GPU-sick"}
    assert set(driver(tmp_path, "1", "2", "3").gpus()) == {"GPU-cut"}
    assert set(driver(tmp_path, "GPU-sick").gpus()) == {"GPU-sick"}


@pytest.mark.parametrize(
    ("mem_mib", "names"),
    [
        (81039, "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
        (40354, "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"),
        (143771, "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),
    ],
)
def test_a_gpu_has_the_profiles_that_nvidia_documents_for_its_memory(mem_mib: int, names: str) -> None:
    found = kinds(Gpu(index=0, uuid="GPU-a", minor=0, mem_mib=mem_mib))
    assert [kind.profile for kind in found] == names.split()
    assert {kind.profile for kind in found} <= set(mig.KNOWN)
    assert all(start + kind.size <= mig.MEMORY_SLICES for kind in found for start in kind.starts)
    assert all(0 < kind.mem_mib <= mem_mib for kind in found)


def test_instances_outlive_the_process(tmp_path: Path) -> None:
    made = ask(tmp_path, SMALL, LARGE).made
    assert {name: (device.gi, device.uuid[:4]) for name, device in made.items()} == {
        SMALL: (1, "MIG-"),
        LARGE: (2, "MIG-"),
    }
    assert ask(tmp_path, SMALL, LARGE).made == made
    assert ask(tmp_path, LARGE).made == {LARGE: made[LARGE]}
    assert ask(tmp_path, LARGE, OTHER).made[OTHER].gi == 1
    ask(tmp_path)
    assert driver(tmp_path).found("GPU-cut") == []


def test_what_a_driver_would_not_make_is_refused(tmp_path: Path) -> None:
    made = driver(tmp_path)
    made.make(place(LARGE))
    made.make(place("GPU-cut/1g.10gb+me@0:1"))
    for name in ("GPU-cut/4g.40gb@0:4", "GPU-cut/1g.10gb@4:1", "GPU-cut/1g.10gb+me@1:1", "GPU-fixed/1g.10gb@0:1"):
        with pytest.raises(PartitionError, match="does not make"):
            made.make(place(name))
    assert [each.device for each in made.found("GPU-cut")] == [None, None]


def test_a_file_of_something_else_is_an_error(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"GPU-cut/1g.10gb@0:1": {"gi": -1}}')
    with pytest.raises(FileError, match=r"fake-driver\.json: expected the instances of a fake driver"):
        driver(tmp_path)


def test_what_cannot_be_written_is_refused_and_not_there(tmp_path: Path) -> None:
    made = driver(tmp_path)
    (tmp_path / NAME).with_suffix(".new").mkdir()
    with pytest.raises(PartitionError, match="cannot be written"):
        made.make(place(SMALL))
    assert made.found("GPU-cut") == []
