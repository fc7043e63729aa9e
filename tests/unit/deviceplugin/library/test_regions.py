"""Files of regions: made before their container, kept as long as its pod, never more than the folder may hold."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.library import region
from deviceplugin.library.regions import LOCKS, Owner, Regions

HUGE_MIB = 2**40
OWNER = Owner("0a1b2c3d-1111-2222-3333-444455556666", "main")
LATER = 2.0**40


@pytest.fixture
def regions(tmp_path: Path) -> Regions:
    return Regions(tmp_path, HUGE_MIB)


def test_a_file_is_made_at_its_full_size_for_any_user(regions: Regions) -> None:
    umask = os.umask(0o077)
    try:
        regions.make(OWNER)
    finally:
        os.umask(umask)
    status = regions.path(OWNER).stat()
    assert (status.st_size, stat.S_IMODE(status.st_mode)) == (region.SIZE, 0o666)
    assert status.st_blocks * 512 >= region.SIZE, "its room is taken"
    assert stat.S_IMODE(regions.locks.stat().st_mode) == 0o777
    assert stat.S_IMODE(regions.path(OWNER).parent.stat().st_mode) == 0o755


def test_a_file_that_is_there_keeps_what_it_says(regions: Regions) -> None:
    regions.make(OWNER)
    regions.path(OWNER).write_bytes(b"abc")
    regions.make(OWNER)
    assert regions.path(OWNER).read_bytes()[:4] == b"abc\0"
    assert regions.path(OWNER).stat().st_size == region.SIZE


@pytest.mark.parametrize("owner", [Owner("../x", "main"), Owner("uid", "a/b"), Owner("", "main"), Owner("u", "A" * 99)])
def test_no_name_leads_out_of_the_folder(regions: Regions, tmp_path: Path, owner: Owner) -> None:
    with pytest.raises(OSError, match="no name of a container"):
        regions.make(owner)
    assert list(tmp_path.rglob("*.cache")) == []


def test_a_link_at_its_place_is_not_followed(regions: Regions, tmp_path: Path) -> None:
    regions.make(OWNER)
    regions.path(OWNER).unlink()
    regions.path(OWNER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"[Ss]ymbolic link"):
        regions.make(OWNER)
    assert not (tmp_path / "elsewhere").exists()


def test_after_a_reboot_files_are_made_again_also_where_the_runtime_made_folders(regions: Regions) -> None:
    regions.make(OWNER)
    regions.path(OWNER).unlink()
    (regions.path(OWNER) / "left" / "by").mkdir(parents=True)
    other = Owner("uid-other", "side")
    regions.complete([OWNER, other])
    assert all(regions.path(owner).stat().st_size == region.SIZE for owner in (OWNER, other))


def test_files_of_pods_that_are_gone_are_removed_and_others_never(regions: Regions, tmp_path: Path) -> None:
    kept, gone = Owner("uid-here", "main"), Owner("uid-gone", "main")
    for owner in (kept, gone, Owner("uid-gone", "side")):
        regions.make(owner)
    (regions.path(kept).parent / "notes").write_text("not ours")
    (regions.path(kept).parent / "uid-gone_made-by-the-runtime.cache").mkdir()
    assert regions.sweep({"uid-here"}, before=0.0) == 0, "they are younger than the look at the pods"
    assert regions.sweep({"uid-here"}, LATER) == 3
    assert sorted(path.name for path in regions.path(kept).parent.iterdir()) == ["notes", "uid-here_main.cache"]
    assert regions.sweep({"uid-here"}, LATER) == 0


def test_a_link_of_a_pod_that_is_gone_is_removed_and_what_it_names_stays(regions: Regions, tmp_path: Path) -> None:
    regions.make(OWNER)
    target = tmp_path / "target"
    target.mkdir()
    Regions(tmp_path, HUGE_MIB).path(Owner("uid-gone", "main")).symlink_to(target)
    assert regions.sweep({OWNER.uid}, LATER) == 1
    assert target.is_dir()


def test_the_folder_must_be_there_and_on_a_small_file_system(tmp_path: Path) -> None:
    assert Regions(tmp_path, HUGE_MIB).trouble() == ""
    assert (tmp_path / LOCKS).is_dir()
    missing = Regions(tmp_path / "none", HUGE_MIB).trouble()
    assert missing == f"the folder {tmp_path / 'none'} is not usable (No such file or directory)"
    (tmp_path / "file").write_text("")
    assert "is not usable" in Regions(tmp_path / "file", HUGE_MIB).trouble()
    large = Regions(tmp_path, 1).trouble()
    assert "containers could fill it, so at most 1 MiB (--library-dir-mib)" in large


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB, where this process may mount one."""
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this process may not mount a file system")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def grow(path: Path) -> None:
    """What a container may do to its own region."""
    with path.open("ab", buffering=0) as file:
        for _ in range(4):
            file.write(b"x" * 2**20)


def test_on_a_file_system_that_is_full_no_further_region_is_made_and_the_others_keep_their_room(small: Path) -> None:
    assert Regions(small, 3).trouble() == ""
    assert "has 3 MiB: containers could fill it, so at most 2 MiB" in Regions(small, 2).trouble()
    regions = Regions(small, 3)
    regions.make(OWNER)
    with pytest.raises(OSError, match="No space left"):
        grow(regions.path(OWNER))
    with pytest.raises(OSError, match="No space left"):
        regions.make(Owner("uid-late", "main"))
    with regions.path(OWNER).open("r+b") as file:
        file.write(b"its pages are its own")
    assert regions.sweep((), LATER) == 2
    regions.make(Owner("uid-late", "main"))
