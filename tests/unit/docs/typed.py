"""The commands that pages tell users to type, and the test that runs each.

A command is a line of an indented block or of an `sh` block, and in other fenced blocks a line after `$ `. Everything
else that is shown as it is (formulas, output, files) stands in a fenced block of another language.

A test takes its commands from the page by `steps()`, so that it runs what users read. `typed_table` names the test of
each section, or of a single command, and the reason for each command that no test runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.unit.docs.pages import EVERY, ROOT, page
from tests.unit.docs.typed_table import NOT_RUN, RUN_BY

_PROMPT = "$ "
_CONTINUED = re.compile(r"\s*\\\n\s*")
_COMMENT = re.compile(r"\s+# .*$")


class Step(NamedTuple):
    """A command, and where it stands."""

    page: str
    """The path from the root."""
    heading: str
    line: str
    """Without prompt, comment and line breaks."""

    @property
    def section(self) -> str:
        return f"{self.page}#{self.heading}"

    def __str__(self) -> str:
        return f"{self.section}: {self.line}"


def steps(page: str, heading: str) -> list[str]:
    """The commands of a section of a page in their order, without those in `NOT_RUN`; at least one.

    `heading` is the title next above them.
    """
    found = [step.line for step in of(page) if step.heading == heading and step.line not in NOT_RUN]
    assert found, f"{page} has no command below the heading {heading!r}"
    return found


def every() -> list[Step]:
    """The commands of all pages."""
    return [step for path in EVERY for step in of(str(path.relative_to(ROOT)))]


@cache
def of(name: str) -> tuple[Step, ...]:
    """All commands of a page."""
    return tuple(parsed(name, page(name).read_text()))


def parsed(name: str, text: str) -> Iterator[Step]:
    """The commands of a page with this text."""
    heading, in_heading = "", False
    for token in MarkdownIt().parse(text):
        heading = token.content if in_heading else heading
        in_heading = token.type == "heading_open"
        if token.type in ("code_block", "fence"):
            yield from (Step(name, heading, line) for line in _lines(token))


def _lines(block: Token) -> Iterator[str]:
    lines = _CONTINUED.sub(" ", block.content).splitlines()
    prompted = [line.removeprefix(_PROMPT) for line in lines if line.startswith(_PROMPT)]
    typed = prompted or (lines if block.type == "code_block" or block.info == "sh" else [])
    yield from (_COMMENT.sub("", line).strip() for line in typed if line.strip() and not line.startswith("#"))


def told(step: Step, table: Mapping[str, str]) -> str | None:
    """What a table says of a command, by its section, itself or its program."""
    keys = (step.section, step.line, step.line.split()[0])
    return next((table[key] for key in keys if key in table), None)


def fault(test: str) -> str | None:
    """What is wrong with a test of the table: it is missing, or its module does not say what it takes from where."""
    if absent := missing(test):
        return absent
    tree = _tree(test)
    said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    untold = sorted({part for key, by in RUN_BY.items() if by == test for part in _parts(key)} - said)
    return f"{test} does not name {untold}" if untold else None


def missing(test: str) -> str | None:
    """Whether a test does not exist, in words."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    path, _, function = test.partition("::")
    found = (ROOT / path).exists() and any(
        isinstance(node, functions) and node.name == function for node in _tree(test).body
    )
    return None if found else f"{test} does not exist"


def _tree(test: str) -> ast.Module:
    return ast.parse((ROOT / test.partition("::")[0]).read_text())


def _parts(key: str) -> list[str]:
    """What a test says to get its commands: page and heading, or the command itself."""
    path, found, heading = key.partition(".md#")
    return [f"{path}.md", heading] if found else [key]
