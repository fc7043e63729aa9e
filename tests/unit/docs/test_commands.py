"""Every command line on the pages is one that the command takes, and the tables of options are the real ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperGroup

from tests.unit.docs import options
from tests.unit.docs.pages import PAGES, ROOT, ids, page

COMMANDS = options.commands()
FOREIGN = {
    "--all-namespaces",
    "--cookie-refresh",  # oauth2-proxy
    "--create-namespace",
    "--build-arg",
    "--enable-provisioning-requests",
    "--feature-gates",
    "--force",
    "--gpu-driver",
    "--grace-period",
    "--help",
    "--register-with-taints",
    "--runtime-config",
    "--set",
}
"""Options of other programs in the pages, and the one that every command has."""


def code(of: Path) -> Iterator[str]:
    """Code spans, and lines that may be commands."""
    text = of.read_text()
    yield from (span.replace("\n", " ") for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", text))
    yield from (line.strip().removeprefix("$ ") for line in text.splitlines() if line.startswith((" ", "$ ")))


def called(line: str) -> tuple[str, list[str]] | None:
    """The command of ours that a line calls, and its arguments; None if it calls none."""
    if not line.startswith(("gangshare ", "kubectl gangshare ", "python -m deviceplugin")):
        return None
    words = shlex.split(line.removeprefix("kubectl "), comments=True)
    end = next((i for i, word in enumerate(words) if word in (">", "|", ";", "&&")), len(words))
    words = words[:end]
    for length in range(len(words), 0, -1):
        name = " ".join(words[:length])
        if name in COMMANDS:
            return name, words[length:]
    return None


LINES = sorted({(of, line) for of in PAGES for line in code(of) if called(line)})


def test_the_pages_show_every_command() -> None:
    shown = {name for _, line in LINES for name, _ in [called(line) or ("", [])]}
    assert set(COMMANDS) - shown <= {
        "gangshare",
        "gangshare explain",
        "gangshare queue",
        "gangshare move",
        "gangshare resize",
    }


@pytest.mark.parametrize(("of", "line"), LINES, ids=ids)
def test_a_command_line_is_one_that_the_command_takes(of: Path, line: str) -> None:
    name, arguments = called(line) or ("", [])
    if "--help" in arguments or isinstance(COMMANDS[name], TyperGroup):
        return
    COMMANDS[name].make_context(name, arguments)


@pytest.mark.parametrize("of", PAGES, ids=ids)
def test_an_option_that_a_page_names_exists(of: Path) -> None:
    known = {opt for command in COMMANDS.values() for option in options.of(command) for opt in option.opts} | FOREIGN
    named = {found for span in code(of) if span.startswith("--") for found in re.findall(r"--[a-z][a-z-]+", span)}
    assert named - known == set()


@pytest.mark.parametrize("process", options.PROCESSES)
def test_the_tables_of_options_are_the_real_ones(process: str) -> None:
    real = options.table(process)
    assert real in page("docs/options.md").read_text(), "make it anew: python -m tests.unit.docs.options"


@pytest.mark.parametrize("of", PAGES, ids=ids)
def test_a_make_target_exists(of: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {found for span in code(of) for found in re.findall(r"^make ([a-z-]+)", span)}
    assert named - targets == set()
