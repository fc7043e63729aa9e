"""Paths as the kubelet's two drivers and three runtimes make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deviceplugin import cgroups
from deviceplugin.cgroups import Group

UID = "0a1b2c3d-1111-2222-3333-444455556666"
UNDER = UID.replace("-", "_")
STATIC = "0a1b2c3d111122223333444455556666"
ID = "ab" * 32


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (
            f"/kubepods.slice/a.slice/kubepods-burstable-pod{UNDER}.slice/cri-containerd-{ID}.scope",
            UID,
        ),
        (f"/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{ID}.scope", UID),
        (f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDER}.slice/docker-{ID}.scope/init", UID),
        (f"/kubepods/burstable/pod{UID}/{ID}", UID),
        (f"/../../pod{UID}/{ID}/sub/group", UID),
        (f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDER}.slice/cri-containerd-{ID}.scope", UID),
        (f"/kubepods/pod{STATIC}/{ID}", STATIC),
        (f"/kubepods.slice/kubepods-pod{UNDER}.slice/crio-conmon-{ID}.scope", None),
        (f"/kubepods.slice/kubepods-pod{UNDER}.slice", None),
        (f"/system.slice/docker-{ID}.scope", None),
        (f"/kubepods/pod{UID[:-1]}/{ID}", None),
        (f"/kubepods/pod{UID}/{ID[:-1]}", None),
        ("", None),
    ],
)
def test_a_path_names_a_container(path: str, found: str | None) -> None:
    assert cgroups.of_path(path) == (Group(found, ID) if found else None)


def test_a_process_is_in_the_container_of_its_group(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"1:name=systemd:/other\n0::/kubepods/pod{UID}/{ID}\n")
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "cgroup").write_bytes(b"\xff\xfe\n" + b"x" * 10_000)
    assert cgroups.of_process(7, tmp_path) == Group(UID, ID)
    assert cgroups.of_process(8, tmp_path) is None
    assert cgroups.of_process(9, tmp_path) is None


@pytest.mark.parametrize(
    "path",
    [
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDER}.slice/cri-containerd-{ID}.scope",
        f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDER}.slice/crio-{ID}.scope",
        f"kubepods/besteffort/pod{UID}/{ID}",
    ],
)
def test_the_directories_of_containers_are_found(tmp_path: Path, path: str) -> None:
    (tmp_path / path).mkdir(parents=True)
    (tmp_path / "system.slice" / f"docker-{ID}.scope").mkdir(parents=True)
    assert cgroups.containers(tmp_path) == {Group(UID, ID): tmp_path / path}


def test_a_hierarchy_of_version_2_is_told_by_its_controllers(tmp_path: Path) -> None:
    assert not cgroups.unified(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert cgroups.unified(tmp_path)


def test_the_processes_of_a_container_are_those_of_all_its_groups_that_are_seen(tmp_path: Path) -> None:
    below = tmp_path / "init.scope" / "deeper"
    below.mkdir(parents=True)
    (tmp_path / "cgroup.procs").write_text("7\n0\n0\n")
    (below / "cgroup.procs").write_text("8\n9\n")
    assert cgroups.processes(tmp_path) == {7, 8, 9}
    assert cgroups.processes(tmp_path / "gone") == frozenset()


def test_a_list_that_is_cut_ends_with_a_whole_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "LIST", 8)
    (tmp_path / "cgroup.procs").write_text("11\n22\n333\n")
    assert cgroups.processes(tmp_path) == {11, 22}
