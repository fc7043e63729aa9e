"""The page on trust: each row names tests that exist."""

from __future__ import annotations

import ast
import re

import pytest

from tests.unit.docs.pages import ROOT, page, table

ROWS = table(page("docs/trust.md"), "what", "who writes it", "how it is checked", "what a forgery gets", "shown by")
TESTS = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_tests_that_exist(row: tuple[str, ...]) -> None:
    named = TESTS.findall(row[-1])
    assert named
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
