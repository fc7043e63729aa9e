"""What a node must have so that the library counts, and what it then says."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec
import pytest

from deviceplugin.isolation import levels as isolation
from deviceplugin.library import levels, probe
from deviceplugin.library.levels import Facts
from deviceplugin.library.probe import Probe
from deviceplugin.library.regions import Regions
from deviceplugin.machine import Machine, MpsLevel
from tests.unit.deviceplugin.isolation.test_levels import GOOD
from tests.unit.deviceplugin.library.hosts import ELF, a_group, install

LIBRARY = Facts(processes=True)
OLD = msgspec.structs.replace(GOOD, driver="535.1", limits=False, library=LIBRARY)


def test_before_driver_615_the_library_enforces_memory_and_says_what_it_does_not_hold() -> None:
    found = isolation.isolation(OLD)
    assert str(found) == "memory enforced (library), compute promised"
    assert found.why.startswith("the library holds programs that load it: static programs")
    assert found.why.endswith("nothing on this node caps compute")
    assert found.meets("memory")
    assert not found.meets("compute")


def test_with_its_cap_compute_is_cooperative() -> None:
    caps = msgspec.structs.replace(OLD, library=Facts(processes=True, caps_compute=True))
    found = isolation.isolation(caps)
    assert str(found) == "memory enforced (library), compute capped (cooperative)"
    assert "caps compute" not in found.why
    assert not found.meets("compute")


def test_the_driver_goes_before_the_library_and_is_followed_by_it() -> None:
    both = msgspec.structs.replace(GOOD, library=LIBRARY)
    assert isolation.isolation(both).memory == "driver"
    assert isolation.isolation(both, {"toolkit": "a container showed it"}).memory == "library"
    found = isolation.isolation(both, {"toolkit": "a container showed it", "library": "another, too"})
    assert (found.memory, found.why) == ("", "another, too; a container showed it")


@pytest.mark.parametrize(
    ("lacks", "why"),
    [
        ({"library": "/l cannot be opened (No such file or directory)"}, "/l cannot be opened"),
        ({"preload": "/p does not name it"}, "/p does not name it"),
        ({"folder": "the folder /f is not usable"}, "the folder /f is not usable"),
        ({"processes": False}, "sees no processes of other containers"),
        ({"mps": True}, "MPS is set up on this node"),
    ],
)
def test_one_thing_that_lacks_and_the_node_promises_only(lacks: dict[str, object], why: str) -> None:
    facts = msgspec.structs.replace(OLD, library=msgspec.structs.replace(LIBRARY, **lacks))
    found = isolation.isolation(facts)
    assert found.memory == ""
    assert found.why.startswith(why) or why in found.why
    assert "driver 535.1 is older than 615" in found.why


def test_where_all_gpus_are_in_mig_mode_there_are_no_parts_to_limit() -> None:
    assert isolation.isolation(msgspec.structs.replace(OLD, mig=4)).memory == ""


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (ELF, ""),
        (b"", "no shared library"),
        (b"#!/bin/sh\necho no library\n", "no shared library"),
        (b"\x7fELF\x01" + ELF[5:], "no shared library of 64 bits"),
        (b"\x7fELF\x02\x02" + ELF[6:], "no shared library"),
        (ELF[:16] + b"\x02\x00" + ELF[18:], "no shared library"),  # a program
        (ELF[:18] + b"\x03\x00", "of another machine"),
    ],
)
def test_a_file_that_is_no_library_of_this_machine_is_not_given_to_containers(head: bytes, why: str) -> None:
    found = levels.elf_obstacle(head, platform.machine())
    assert why in found
    assert bool(found) == bool(why)


def test_on_a_machine_whose_layout_is_not_known_none_is() -> None:
    assert "not known" in levels.elf_obstacle(ELF, "riscv64")


def test_a_node_with_all_of_it_proves_it_and_what_is_taken_away_shows(tmp_path: Path) -> None:
    library = install(tmp_path)
    folder, groups = tmp_path / "regions", tmp_path / "groups"
    folder.mkdir()
    a_group(groups, "0a1b2c3d-1111-2222-3333-444455556666", "ab" * 32, 4321)
    made = Probe(library, Regions(folder, 2**40), groups, caps_compute=False)
    facts = made.facts(Machine())
    assert levels.obstacles(facts) == []
    assert facts.mark

    preload = library.with_name("ld.so.preload")
    preload.write_text("/somewhere/else.so\n")
    assert levels.obstacles(made.facts(Machine())) == [f"{preload} does not name /usr/local/vgpu/libvgpu.so alone"]
    preload.unlink()
    assert "cannot be opened" in levels.obstacles(made.facts(Machine()))[0]
    install(tmp_path)
    assert made.facts(Machine()).mark != facts.mark, "another library is noticed"
    library.unlink()
    assert levels.obstacles(made.facts(Machine())) == [f"{library} cannot be opened (No such file or directory)"]
    install(tmp_path)
    assert made.facts(Machine(mps=MpsLevel())).mps


def test_a_file_that_others_may_write_is_loaded_into_no_container(tmp_path: Path) -> None:
    library = install(tmp_path)
    for mode in (0o775, 0o757):
        library.chmod(mode)
        assert probe.trouble(library, lambda _: "") == f"{library} may be written by others than its owner"


def test_a_pipe_is_not_waited_for_and_a_folder_is_no_library(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o644)
    (tmp_path / "folder").mkdir(mode=0o755)
    for name in ("pipe", "folder"):
        assert probe.trouble(tmp_path / name, lambda _: "") == f"{tmp_path / name} is no regular file"
    link = tmp_path / "libvgpu.so.1"
    link.symlink_to(install(tmp_path))
    assert probe.trouble(link, lambda _: "") == "", "a link to a version is usual"


def test_only_processes_of_others_show_that_they_are_seen(tmp_path: Path) -> None:
    def seen() -> bool:
        return Probe(tmp_path, Regions(tmp_path, 1), tmp_path / "g", caps_compute=False).facts(Machine()).processes

    assert not seen()
    own = a_group(tmp_path / "g", "0a1b2c3d-1111-2222-3333-444455556666", "ab" * 32, os.getpid(), 0)
    assert not seen(), "its own container"
    a_group(tmp_path / "g", "0a1b2c3d-1111-2222-3333-444455557777", "cd" * 32, 0, 0)
    assert not seen(), "of another PID namespace"
    (own / "below").mkdir()
    a_group(tmp_path / "g", "0a1b2c3d-1111-2222-3333-444455558888", "ef" * 32, 77)
    assert seen()
