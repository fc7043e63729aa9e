"""CONTRIBUTING.md names files and functions that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.unit.docs.pages import ROOT, page

CONTRIBUTING = page("CONTRIBUTING.md")
TEXT = CONTRIBUTING.read_text()
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FILE = re.compile(r"\.?[\w-]+(/[\w.-]+)+|[\w.-]+\.(py|md|toml|yaml)|Makefile")
CALL = re.compile(r"((?:\w+\.)?\w+)\(\)")
OF_TYPER = {"app.command"}


def spans(text: str) -> list[str]:
    return SPAN.findall(text)


def items() -> Iterator[str]:
    """Paragraphs, and items of lists each by itself."""
    yield from (part for part in re.split(r"\n\n|\n(?=\d+\. |- |\|)", TEXT) if part.strip())


@cache
def defined(path: str) -> frozenset[str]:
    """Functions of a module, and methods as `Class.method`."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, functions):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, functions)}
    return frozenset(found)


FILES = sorted({span for span in spans(TEXT) if FILE.fullmatch(span)})
CALLS = [(call, item) for item in items() for call in map(CALL.fullmatch, spans(item)) if call]
WALKS = re.findall(r"^## (A \w+ through the code)\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", FILES)
def test_a_file_that_it_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("call", "item"), CALLS, ids=lambda value: value[1] if isinstance(value, re.Match) else "")
def test_a_function_is_in_a_file_that_the_same_item_names(call: re.Match[str], item: str) -> None:
    modules = [span for span in spans(item) if FILE.fullmatch(span) and span.endswith(".py")]
    assert call[1] in OF_TYPER or any(call[1] in defined(path) for path in modules), f"none of {modules} has it"


def test_a_walk_through_the_code_has_steps_that_name_functions() -> None:
    assert [title for title, _ in WALKS] == ["A pod through the code", "A gang through the code"]
    for _, text in WALKS:
        steps = re.findall(r"^\d+\. (.+)$", text, re.MULTILINE)
        assert 10 <= len(steps) <= 15
        assert all(any(map(CALL.fullmatch, spans(step))) for step in steps)
