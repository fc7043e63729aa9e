"""Instances follow what pods hold, whatever happens in between; those of the operator are never touched."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deviceplugin.partitioner.journal import NAME, Journal
from deviceplugin.partitioner.protocol import Answer, Held, PartitionError
from protos.contract import mig
from protos.files import FileError
from tests.unit.deviceplugin.partitioner.machine import KINDS, KilledError, Machine, partitioner

A, B = "GPU-a", "GPU-b"


def at(profile: str, start: int, gpu: str = A) -> str:
    size = next(kind.size for kind in KINDS if kind.profile == profile)
    return mig.Place(gpu, profile, start, size).name


def put(machine: Machine, name: str) -> None:
    place = mig.place(name)
    assert place is not None
    machine.place(place)


def ask(machine: Machine, folder: Path, *held: str) -> Answer:
    """By a process that has just started, so that nothing is remembered but the journal."""
    return partitioner(machine, folder).answer(Held(places=held))


def test_what_is_held_is_made_once_and_goes_when_nobody_holds_it(tmp_path: Path) -> None:
    machine = Machine(A)
    small, large = at("1g.10gb", 6), at("3g.40gb", 0)
    found = ask(machine, tmp_path, small, large)
    assert set(found.made) == {small, large} == machine.there()
    assert found.refused == {}
    assert ask(machine, tmp_path, small, large).made == found.made
    assert machine.made == [small, large]
    assert set(ask(machine, tmp_path, small).made) == {small} == machine.there()
    assert machine.destroyed == [large]
    ask(machine, tmp_path)
    assert machine.there() == set()
    assert Journal(tmp_path).ours == {}


def test_an_instance_of_the_operator_stays_and_takes_its_places(tmp_path: Path) -> None:
    machine = Machine(A, B)
    theirs = at("3g.40gb", 4)
    put(machine, theirs)
    found = ask(machine, tmp_path)
    assert found.others == ("MIG-1",)
    assert {kind.profile: kind.starts for kind in found.gpus[A]} == {
        "1g.10gb": (0, 1, 2, 3), "1g.10gb+me": (0, 1, 2, 3), "2g.20gb": (0, 2), "3g.40gb": (0,),
    }  # fmt: skip
    assert found.gpus[B] == KINDS
    for name in (theirs, at("2g.20gb", 4), at("7g.80gb", 0)):
        assert f"{theirs} is there" in ask(machine, tmp_path, name).refused[name]
    assert machine.there() == {theirs}
    assert machine.destroyed == []


def test_one_that_the_operator_has_put_in_place_of_ours_is_theirs(tmp_path: Path) -> None:
    machine, name = Machine(A), at("1g.10gb", 0)
    ask(machine, tmp_path, name)
    machine.instances[A].clear()
    put(machine, name)
    assert ask(machine, tmp_path).others != ()
    assert machine.there() == {name}


def test_an_instance_that_vanished_is_made_again(tmp_path: Path) -> None:
    machine, name = Machine(A), at("1g.10gb", 0)
    first = ask(machine, tmp_path, name).made[name]
    machine.instances[A].clear()  # a reset, or a reboot
    assert ask(machine, tmp_path, name).made[name] != first


@pytest.mark.parametrize("refuses", ["make", "complete"])
def test_what_the_driver_refuses_is_told_and_leaves_nothing_behind(tmp_path: Path, refuses: str) -> None:
    machine, name = Machine(A), at("1g.10gb", 0)
    machine.refuses = refuses
    assert "insufficient resources" in ask(machine, tmp_path, name).refused[name]
    assert machine.there() == set()
    assert Journal(tmp_path).ours == {}
    machine.refuses = ""
    assert set(ask(machine, tmp_path, name).made) == {name}


@pytest.mark.parametrize(
    "name",
    [
        "GPU-a",
        "MIG-1",
        at("1g.10gb", 0, "GPU-z"),
        "GPU-a/1g.10gb@7:1",
        "GPU-a/1g.10gb@0:2",
        "GPU-a/4g.40gb@0:4",
        "x" * 200,
    ],
)
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    machine = Machine(A)
    assert name in ask(machine, tmp_path, name, at("1g.10gb", 1)).refused
    assert machine.there() == {at("1g.10gb", 1)}


def test_one_in_use_stays_until_it_is_free(tmp_path: Path) -> None:
    machine, old, new = Machine(A), at("1g.10gb", 0), at("3g.40gb", 0)
    ask(machine, tmp_path, old)
    machine.busy.add(old)
    assert f"{old} is there" in ask(machine, tmp_path, new).refused[new]
    machine.busy.clear()
    assert set(ask(machine, tmp_path, new).made) == {new} == machine.there()


def test_a_gpu_that_does_not_answer_holds_up_no_other_and_loses_nothing(tmp_path: Path) -> None:
    machine, here, there = Machine(A, B), at("1g.10gb", 0), at("1g.10gb", 0, B)
    ask(machine, tmp_path, here)
    machine.failing.add(A)
    found = ask(machine, tmp_path, there)
    assert set(found.made) == {there}
    assert set(found.gpus) == {B}
    assert found.unread == (A,)
    assert here in machine.there()
    assert here in Journal(tmp_path).ours
    machine.failing.clear()
    ask(machine, tmp_path, there)
    assert machine.there() == {there}


def test_without_its_journal_it_does_not_start(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{")
    with pytest.raises(FileError, match=r"instances\.json"):
        Journal(tmp_path)
    (tmp_path / NAME).write_text('{"v":2}')
    with pytest.raises(FileError):
        Journal(tmp_path)


def test_nothing_is_made_that_cannot_be_written_down(tmp_path: Path) -> None:
    machine, name = Machine(A), at("1g.10gb", 0)
    folder = tmp_path / "gone"
    folder.mkdir()
    made = partitioner(machine, folder)
    folder.rmdir()
    assert "cannot be written" in made.answer(Held(places=(name,))).refused[name]
    assert machine.there() == set()


PLACES = [at(kind.profile, start, gpu) for gpu in (A, B) for kind in KINDS for start in kind.starts]
SETS = st.lists(st.lists(st.sampled_from(PLACES), max_size=4, unique=True), min_size=1, max_size=4)


@given(SETS, st.lists(st.integers(1, 12), max_size=6), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_process_that_is_killed_anywhere_leaves_no_instance_without_owner(
    tmp_path_factory: pytest.TempPathFactory, wishes: list[list[str]], kills: list[int], operator: bool
) -> None:
    folder, machine = tmp_path_factory.mktemp("p"), Machine(A, B)
    theirs = {at("2g.20gb", 2, B)} if operator else set()
    for name in theirs:
        put(machine, name)
    for held in wishes:
        left = [kills.pop() if kills else 0]

        def step(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise KilledError

        machine.step = step
        with contextlib.suppress(KilledError):
            ask(machine, folder, *held)
        machine.step = lambda: None
        assert machine.there() - theirs <= set(Journal(folder).ours), "all of ours are in the journal"
        assert theirs <= machine.there()
    found = ask(machine, folder, *wishes[-1])
    assert machine.there() == set(found.made) | theirs
    assert set(found.made) | set(found.refused) == set(wishes[-1])
    ask(machine, folder)
    assert machine.there() == theirs
    assert Journal(folder).ours == {}


def test_the_error_of_a_journal_is_a_sentence(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "none")
    with pytest.raises(PartitionError, match="No such file"):
        journal.note("x")
    assert journal.ours == {}
