"""The extra `demo`: what only the embedded cluster needs, and what is said where it is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = ("extender.sim", "extender.cli.demo")
PROCESSES = {
    "extender": "extender.__main__, extender.server.command, extender.server.run, extender.server.webhook",
    "plugin": "deviceplugin.__main__, deviceplugin.command, deviceplugin.plugin, deviceplugin.server",
}
DEMO = "error: gangshare demo needs the embedded cluster: pip install 'gangshare[demo]'\n"
REPLAYS = "error: gangshare simulate needs the trace replays: pip install 'gangshare[demo]'\n"


def distributions(listed: Iterable[str]) -> set[NormalizedName]:
    """The distributions that these requirements install here, with all that they require."""
    found: set[NormalizedName] = set()
    wanted = list(listed)
    while wanted:
        asked = Requirement(wanted.pop())
        name = canonicalize_name(asked.name)
        if name not in found and (asked.marker is None or asked.marker.evaluate({"extra": ""})):
            found.add(name)
            wanted += metadata.requires(name) or ()
    return found


def of_the_extra(image: str) -> set[str]:
    """Top-level modules that the extra brings and this image has not."""
    lock = (ROOT / f"manifests/images/{image}.txt").read_text()
    extra = distributions(PROJECT["optional-dependencies"]["demo"])
    extra -= {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)}
    known = metadata.packages_distributions()
    return {module for module, owners in known.items() if extra & set(map(canonicalize_name, owners))}


def without(missing: Iterable[str], code: str) -> subprocess.CompletedProcess[str]:
    """Runs it where importing these modules fails, as if they were not installed."""
    code = f"import sys; sys.modules.update(dict.fromkeys({sorted(missing)!r}))\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def gangshare(missing: str, *args: str) -> subprocess.CompletedProcess[str]:
    """A command where a module is missing."""
    return without([missing], f"sys.argv = {['gangshare', *args]!r}\nfrom extender.__main__ import main; main()")


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_loads_nothing_of_the_embedded_cluster(process: str) -> None:
    modules = of_the_extra(process)
    assert {"aiohttp", "yarl"} <= modules
    ran = without({*modules, *OURS}, f"import {PROCESSES[process]}")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("missing", ["aiohttp", *OURS])
def test_a_demo_without_its_extra_says_what_to_install(missing: str) -> None:
    ran = gangshare(missing, "demo")
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", DEMO)


def test_replays_that_are_not_there_say_what_to_install() -> None:
    ran = gangshare("extender.sim", "simulate", "openb", "--help")
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", REPLAYS)


def test_replays_need_no_more_than_a_plain_installation_has() -> None:
    ran = gangshare("aiohttp", "simulate", "jobs", "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Usage: gangshare simulate jobs" in ran.stdout


@pytest.mark.parametrize(
    ("missing", "process"), [("uvloop", "extender"), ("deviceplugin", "plugin"), ("deviceplugin", "usage")]
)
def test_an_installation_of_user_commands_says_that_it_has_no_processes(missing: str, process: str) -> None:
    ran = gangshare(missing, process, "--help")
    sentence = f"error: gangshare {process} is not part of this installation: pip install gangshare\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", sentence)


def test_a_module_that_no_extra_brings_is_an_error_of_ours() -> None:
    ran = gangshare("msgspec", "demo")
    assert ran.returncode == 1
    assert "ModuleNotFoundError" in ran.stderr
