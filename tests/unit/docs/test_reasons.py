"""Codes and sentences that the pages explain are those that users see, and none is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from deviceplugin.corrections import EVENTS
from protos.contract.inventory import HEALTHY
from tests.unit.docs.pages import ROOT, page, table

EVENTS_PAGE, GANGS = page("docs/events.md"), page("docs/gangs.md")
LEAST = 6
"""Letters that a pattern must have to prove anything."""
TOLD = sorted(
    {
        *(row[:2] for row in table(EVENTS_PAGE, "code", "sentence (an example)", "what to do")),
        *(row[:2] for row in table(EVENTS_PAGE, "code", "sentence (an example)")),
        *(row[:2] for row in table(EVENTS_PAGE, "reason", "message (an example)", "meaning")),
        *(row[:2] for row in table(GANGS, "code", "sentence (an example)", "numbers (an example)")),
    }
)


@cache
def modules() -> dict[Path, ast.Module]:
    packages = ("protos/contract", "extender/engine", "extender/server", "deviceplugin")
    return {file: ast.parse(file.read_text()) for package in packages for file in (ROOT / package).rglob("*.py")}


@cache
def patterns(file: Path, least: int) -> tuple[re.Pattern[str], ...]:
    """What the texts of a module may look like: anything may stand where a value is filled in."""
    found = []
    for node in ast.walk(modules()[file]):
        match node:
            case ast.Constant(str(text)):
                parts: list[str | None] = [text]
            case ast.Call(ast.Name("About"), [_, ast.Constant(str(text))]):
                first, last = text.split("{}")
                parts = [first, None, last]
            case ast.JoinedStr(values):
                parts = [str(value.value) if isinstance(value, ast.Constant) else None for value in values]
            case _:
                continue
        if sum(len(part) for part in parts if part) >= least:
            found.append(re.compile("".join(".+" if part is None else re.escape(part) for part in parts), re.DOTALL))
    return tuple(found)


def says(file: Path, text: str, least: int = LEAST) -> bool:
    return any(pattern.fullmatch(text) for pattern in patterns(file, least))


@pytest.mark.parametrize(("reason", "sentence"), TOLD, ids=lambda text: text[:40])
def test_what_the_page_explains_is_what_users_see(reason: str, sentence: str) -> None:
    assert [file.name for file in modules() if says(file, reason) and says(file, sentence)]


@pytest.mark.parametrize(
    "cells", table(page("docs/operations.md"), "health", "meaning", "new pods"), ids=lambda cells: cells[0]
)
def test_a_word_for_health_is_one_of_the_plugins(cells: tuple[str, ...]) -> None:
    word, new_pods = cells[0].strip("`"), cells[2]
    assert [file.name for file in modules() if says(file, word.removeprefix("sick:"), least=2)]
    assert (new_pods == "yes") is (word == HEALTHY)


def test_no_reason_is_left_out() -> None:
    given = set(EVENTS.values())
    for tree in modules().values():
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Name("Reason" | "About" | "AskError"), [ast.Constant(str(reason)), *_]):
                    given.add(reason)
    assert len(given) > 10
    assert given - {reason for reason, _ in TOLD} == set()
