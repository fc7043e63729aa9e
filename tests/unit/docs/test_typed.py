"""A test runs every command that the pages tell users to type, or the table says why none does."""

from __future__ import annotations

import re

import pytest

from tests.unit.docs import typed
from tests.unit.docs.typed_table import NOT_RUN, RUN_BY

STEPS = typed.every()


def test_a_test_runs_each_command_or_the_table_says_why_none_does() -> None:
    """See `typed_table`. What is no command belongs into a ```text block."""
    assert [str(step) for step in STEPS if not (typed.told(step, RUN_BY) or typed.told(step, NOT_RUN))] == []


def test_no_section_is_said_to_run_and_not_to_run() -> None:
    """A single command of a section may be left out."""
    assert set(RUN_BY) & set(NOT_RUN) == set()


@pytest.mark.parametrize("test", sorted(set(RUN_BY.values())))
def test_a_named_test_exists_and_takes_the_commands_from_the_page(test: str) -> None:
    assert typed.fault(test) is None


@pytest.mark.parametrize("reason", sorted({why for why in NOT_RUN.values() if "::" in why}))
def test_a_test_that_a_reason_names_exists(reason: str) -> None:
    for test in re.findall(r"tests/\S+\.py::\w+", reason):
        assert typed.missing(test) is None


def test_the_table_has_nothing_that_no_page_has() -> None:
    known = {key for step in STEPS for key in (step.section, step.line, step.line.split()[0])}
    assert {*RUN_BY, *NOT_RUN} - known == set()


def test_commands_are_found_in_every_kind_of_block() -> None:
    text = (
        "# Page\n\n    kubectl one   # why\n\n1. List\n\n       kubectl two \\\n         --more\n\n## Other\n\n"
        "```sh\nkubectl three\n# comment\n```\n\n- item\n\n  ```console\n  $ kubectl four\n  output\n  ```\n\n"
        "```text\nno command\n```\n"
    )
    assert [(step.heading, step.line) for step in typed.parsed("page", text)] == [
        ("Page", "kubectl one"),
        ("Page", "kubectl two --more"),
        ("Other", "kubectl three"),
        ("Other", "kubectl four"),
    ]
