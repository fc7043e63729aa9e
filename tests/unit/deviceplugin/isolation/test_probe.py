"""Facts of a host: control groups in folders, and a toolkit that is a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from deviceplugin.isolation import probe
from deviceplugin.isolation.probe import Probe
from deviceplugin.machine import Machine
from tests.unit.deviceplugin.builders import a_gpu

PACKAGED = "usr/bin/nvidia-ctk"
OPERATORS = "usr/local/nvidia/toolkit/nvidia-ctk"


def install(host: Path, where: str, says: str, code: int = 0) -> Path:
    program = host / where
    program.parent.mkdir(parents=True, exist_ok=True)
    fresh = program.with_suffix(".new")
    fresh.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{says}'\necho x >> {host}/asked\nexit {code}\n")
    fresh.chmod(0o755)
    fresh.replace(program)
    return program


def told(version: str) -> str:
    return f"NVIDIA Container Toolkit CLI version {version}"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return tmp_path


def toolkit(made: Probe) -> tuple[str, str]:
    facts = made.facts(Machine())
    return facts.toolkit, facts.toolkit_why


def test_the_program_on_the_host_tells_its_version_and_is_asked_again_once_it_changes(host: Path) -> None:
    install(host, PACKAGED, told("1.20.1"))
    made = Probe(host, host, "")
    assert [toolkit(made) for _ in range(3)] == [("1.20.1", "")] * 3
    assert (host / "asked").read_text() == "x\n"
    install(host, PACKAGED, told("1.17.4"))
    assert toolkit(made) == ("1.17.4", "")


def test_of_two_toolkits_the_older_counts(host: Path) -> None:
    install(host, PACKAGED, told("1.20.1"))
    install(host, OPERATORS, told("1.19.0"))
    assert toolkit(Probe(host, host, "")) == ("1.19.0", "")


def test_the_operators_program_is_the_one_behind_its_script(host: Path) -> None:
    install(host, OPERATORS, "a script with paths of the host", code=1)
    install(host, f"{OPERATORS}.real", told("1.20.2"))
    assert toolkit(Probe(host, host, "")) == ("1.20.2", "")


@pytest.mark.parametrize(("says", "code"), [("nothing useful", 0), (told("1.20.1"), 1), (told("x.y.z"), 0)])
def test_a_program_that_tells_no_version_proves_nothing(host: Path, says: str, code: int) -> None:
    program = install(host, PACKAGED, says, code)
    assert toolkit(Probe(host, host, "")) == ("", f"{program} tells no version")


def test_a_program_that_does_not_answer_or_cannot_run_proves_nothing(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "ANSWER_S", 0.05)
    program = install(host, PACKAGED, told("1.20.1"))
    program.write_text("#!/bin/sh\nexec sleep 20\n")
    assert probe.asked(program) == ""
    program.chmod(0o644)
    assert probe.asked(program) == ""


def test_what_fails_is_tried_again_after_a_while_only(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(host, PACKAGED, "not now")
    made = Probe(host, host, "")
    assert [toolkit(made)[0] for _ in range(3)] == [""] * 3
    assert (host / "asked").read_text() == "x\n"
    monkeypatch.setattr(probe, "RETRY_S", 0.0)
    toolkit(made)
    assert (host / "asked").read_text() == "x\nx\n"


def test_without_a_program_the_operators_word_counts_or_that_of_a_fake_machine(host: Path) -> None:
    assert toolkit(Probe(host, host, "")) == ("", f"no nvidia-ctk is installed below {host}")
    assert toolkit(Probe(host, None, ""))[1].endswith("(--toolkit-version, --host-root)")
    assert toolkit(Probe(host, None, "1.20.1")) == ("1.20.1", "")
    assert Probe(host, None, "").facts(Machine(toolkit="1.20.3")).toolkit == "1.20.3"


def test_control_groups_and_gpus_are_read_at_each_look(host: Path) -> None:
    made, machine = Probe(host, None, ""), Machine(gpus=(a_gpu(0, mig=True), a_gpu(1)), driver="615.1", limits=True)
    facts = made.facts(machine)
    assert (facts.unified, facts.pods, facts.gpus, facts.mig) == (False, False, 2, 1)
    assert (facts.driver, facts.limits) == ("615.1", True)
    (host / "cgroup.controllers").write_text("cpu\n")
    assert (made.facts(machine).unified, made.facts(machine).pods) == (True, False), "the container's own groups only"
    (host / "kubepods.slice").mkdir()
    assert made.facts(machine).pods
    assert not Probe(host / "none", None, "").facts(machine).pods
