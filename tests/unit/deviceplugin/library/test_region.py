"""Regions are read by their documented layout, and whatever else lies there proves nothing and does no harm."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deviceplugin.library import reader, region
from deviceplugin.library.region import Device, RegionError
from tests.sim import standin_library as layout
from tests.sim.standin_library import Library

GIB = 2**30
GPUS = ("GPU-aa", "GPU-bb")
ENV = {"CUDA_DEVICE_MEMORY_LIMIT": "4096m", "CUDA_DEVICE_MEMORY_LIMIT_0": "4096m", "CUDA_DEVICE_MEMORY_LIMIT_1": "4g"}


@pytest.fixture
def library(tmp_path: Path) -> Library:
    found = Library(tmp_path / "region.cache", ENV, GPUS)
    found.load()
    found.count_gpus()
    return found


def test_it_tells_limits_use_and_programs(library: Library) -> None:
    library.begin(7, gpu0=GIB, gpu1=2 * GIB)
    library.begin(8, gpu1=GIB)
    found, written = reader.read(library.path)
    assert found.devices == (Device("GPU-aa", 4 * GIB, GIB), Device("GPU-bb", 4 * GIB, 3 * GIB))
    assert found.live == 2
    assert found.limit("GPU-bb") == 4 * GIB
    assert found.limit("GPU-cc") is None
    assert written == library.path.stat().st_mtime
    library.end(8)
    found, _ = reader.read(library.path)
    assert (found.live, found.devices[1].used) == (1, 2 * GIB), "what has ended uses nothing"


def test_before_it_has_counted_the_gpus_one_limit_holds_for_all(tmp_path: Path) -> None:
    fresh = Library(tmp_path / "a", ENV, GPUS)
    fresh.load()
    found, _ = reader.read(fresh.path)
    assert (found.devices, found.limit("GPU-bb")) == ((), 4 * GIB)
    unequal = Library(tmp_path / "b", {**ENV, "CUDA_DEVICE_MEMORY_LIMIT_1": "5g"}, GPUS)
    unequal.load()
    assert reader.read(unequal.path)[0].limit("GPU-bb") == 0


def test_use_that_fell_below_zero_is_unknown(library: Library) -> None:
    library.begin(7, gpu0=2**64 - 4096)
    found, _ = reader.read(library.path)
    assert [device.used for device in found.devices] == [None, 0]


def put(at: int, content: bytes) -> Callable[[Library], object]:
    return lambda library: library.put(at, content)


UNKIND: dict[str, tuple[Callable[[Library], object], str]] = {
    "not initialised": (put(layout.MAGIC_AT, bytes(4)), "not initialised"),
    "another magic": (put(layout.MAGIC_AT, b"\xff" * 4), "not initialised"),
    "an older version": (put(layout.MINOR_AT, struct.pack("<i", 1)), "version 1.1"),
    "a newer version": (put(layout.MAJOR_AT, struct.pack("<i", 2)), "version 2.2"),
    "a negative version": (put(layout.MAJOR_AT, b"\xff" * 4), "version -1.2"),
    "too many GPUs": (put(layout.NUMBER_AT, struct.pack("<Q", 17)), "more GPUs"),
    "a huge number of GPUs": (put(layout.NUMBER_AT, b"\xff" * 8), "more GPUs"),
    "too many processes": (put(layout.COUNT_AT, struct.pack("<i", 1025)), "more processes"),
    "a negative number of processes": (put(layout.COUNT_AT, b"\xff" * 4), "more processes"),
    "a GPU without a UUID": (put(layout.UUIDS_AT, bytes(96)), "without a UUID"),
    "a UUID without an end": (put(layout.UUIDS_AT, b"G" * 96), "without a UUID"),
    "a UUID that no terminal shows": (put(layout.UUIDS_AT, b"GPU\x1b[2J\0"), "without a UUID"),
    "a UUID that is no text": (put(layout.UUIDS_AT, b"\xff\xfe\0"), "without a UUID"),
    "one GPU twice": (put(layout.UUIDS_AT + 96, b"GPU-aa\0"), "twice"),
    "truncated": (lambda library: os.truncate(library.path, 2000), "2000 bytes"),
    "truncated by one byte": (lambda library: os.truncate(library.path, layout.SIZE - 1), "bytes: expected"),
    "empty": (lambda library: os.truncate(library.path, 0), "0 bytes"),
    "sparse and huge": (lambda library: os.truncate(library.path, 2**40), "bytes: expected"),
    "gone": (lambda library: library.path.unlink(), "cannot be opened"),
}


@pytest.mark.parametrize("name", UNKIND)
def test_what_is_no_region_of_the_known_version_proves_nothing(library: Library, name: str) -> None:
    change, why = UNKIND[name]
    library.begin(7, gpu0=GIB)
    change(library)
    with pytest.raises(RegionError, match=why):
        reader.read(library.path)


def test_neither_links_nor_pipes_nor_folders_are_followed_or_waited_for(library: Library, tmp_path: Path) -> None:
    link, pipe, folder = tmp_path / "link", tmp_path / "pipe", tmp_path / "folder"
    link.symlink_to(library.path)
    os.mkfifo(pipe)
    folder.mkdir()
    for path, why in ((link, "cannot be opened"), (pipe, "no regular file"), (folder, "no regular file")):
        with pytest.raises(RegionError, match=why):
            reader.read(path)


@pytest.mark.parametrize("cut_at", [0, 100, layout.SLOTS_AT + 10])
@pytest.mark.parametrize("read_before", [0, 1, 2])
def test_a_file_that_is_cut_while_it_is_read_proves_nothing(
    library: Library, monkeypatch: pytest.MonkeyPatch, cut_at: int, read_before: int
) -> None:
    library.begin(7, gpu0=GIB)
    pread, reads = os.pread, []

    def cut(descriptor: int, length: int, offset: int) -> bytes:
        reads.append(length)
        if len(reads) > read_before:
            os.truncate(library.path, cut_at)
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", cut)
    with pytest.raises(RegionError, match="truncated"):
        reader.read(library.path)


def test_a_file_that_another_writes_meanwhile_is_read_within_its_bounds(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    pread, read = os.pread, []

    def grow(descriptor: int, length: int, offset: int) -> bytes:
        read.append(length)
        content = pread(descriptor, length, offset)
        library.put(layout.COUNT_AT, struct.pack("<i", 1024))
        return content

    monkeypatch.setattr(os, "pread", grow)
    found, _ = reader.read(library.path)
    assert found.live == 0
    assert max(read) <= region.SIZE


def test_the_layout_is_the_documented_one() -> None:
    assert (region.HEADER, region.COUNT_AT, region.SIZE) == (layout.SLOTS_AT, layout.COUNT_AT, layout.SIZE)
    assert layout.SLOTS_AT + 1024 * layout.SLOT == layout.COUNT_AT


INTERESTING = st.sampled_from(
    [*range(72), *range(1590, 1740), layout.SLOTS_AT, layout.SLOTS_AT + 40, layout.COUNT_AT, layout.COUNT_AT + 2]
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(INTERESTING, st.binary(min_size=1, max_size=8)), min_size=1, max_size=4))
def test_whatever_a_container_writes_is_a_region_or_an_error_of_ours(
    library: Library, written: list[tuple[int, bytes]]
) -> None:
    library.path.write_bytes(b"")
    library.load()
    library.count_gpus()
    library.begin(7, gpu0=GIB)
    for at, content in written:
        library.put(at, content)
    try:
        found, _ = reader.read(library.path)
    except RegionError:
        return
    assert len(found.devices) <= region.GPUS
    assert found.live <= region.PROCESSES
    assert all(device.used is None or device.used >= 0 for device in found.devices)
