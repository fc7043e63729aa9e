"""Every refusal is reached, and the page has all of them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from extender.engine.types import refusals
from extender.server import verdicts
from protos.contract.reason import Reason
from tests.unit.docs import refusals_page
from tests.unit.docs.pages import ROOT, page, table
from tests.unit.refusals.case import Case, pattern
from tests.unit.refusals.catalogue import CASES

PACKAGES = ("protos/contract", "gangfilter", "extender/engine", "extender/cluster/kinds.py", "deviceplugin")
pytestmark = pytest.mark.faults  # an internal error is one of the reasons
MAKERS = (
    "Reason", "AskError", "SelectionError", "QueueError", "SelectorError", "BadValue", "PodGroupError", "RefusedError",
)  # fmt: skip
"""What makes a sentence of refusal."""
NEWS = {row[0] for row in table(page("docs/events.md"), "reason", "message (an example)", "meaning")}
"""Codes of Events that tell of a running pod, of a node or of an eviction, and refuse nothing."""
ELSEWHERE = {"AllocationForged"}
"""Codes of such Events that are also those of refusals."""


class Site(NamedTuple):
    """A place in a function where a sentence is made."""

    file: str
    line: int


def sites() -> Iterator[Site]:
    files = (file for package in PACKAGES for file in (sorted((ROOT / package).rglob("*.py")) or [ROOT / package]))
    for file in files:
        module = ast.parse(file.read_text())
        for function in ast.walk(module):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
                yield from (Site(str(file), call.lineno) for call in calls if _refuses(call, module))


def _refuses(call: ast.Call, module: ast.Module) -> bool:
    match call:
        case ast.Call(ast.Name(maker), [code, *_]) if maker in MAKERS:
            return _text(code, module) not in NEWS
    return False


def _text(code: ast.expr, module: ast.Module) -> str:
    """The value of a literal, or of a name that the module gives to a literal; "" if it is another expression."""
    match code:
        case ast.Constant(str(text)):
            return text
        case ast.Name(name):
            named = [one.value for one in module.body if isinstance(one, ast.Assign) and _names(one) == [name]]
            return _text(named[0], module) if named else ""
    return ""


def _names(assigned: ast.Assign) -> list[str]:
    return [target.id for target in assigned.targets if isinstance(target, ast.Name)]


def lines_of(work: Callable[[], object], files: set[str]) -> set[Site]:
    """The lines of these files that the work runs."""
    run: set[Site] = set()

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            run.add(Site(frame.f_code.co_filename, frame.f_lineno))
        return line

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: line if frame.f_code.co_filename in files else None)
    try:
        work()
    finally:
        sys.settrace(before)
    return run


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.sentence}"[:120])
def test_a_refusal_is_reached_and_says_this(case: Case) -> None:
    found = case.reach()
    assert found.code == case.code
    assert pattern(case.sentence).fullmatch(found.sentence), found.sentence


def test_every_place_that_makes_a_refusal_is_reached() -> None:
    wanted = set(sites())
    reached = lines_of(lambda: [case.reach() for case in CASES], {site.file for site in wanted})
    assert len(wanted) > 50
    assert sorted(f"{Path(file).relative_to(ROOT)}:{line}" for file, line in wanted - reached) == []


def test_every_sentence_of_the_engine_has_a_case() -> None:
    for made in vars(refusals).values():
        if not isinstance(made, Reason | refusals.About) or made.code in NEWS - ELSEWHERE:
            continue
        said = made.sentence.format("x")
        assert [case for case in CASES if case.code == made.code and pattern(case.sentence).fullmatch(said)], said


def test_every_advice_of_the_extender_is_for_a_refusal() -> None:
    codes = {case.code for case in CASES}
    for told in (verdicts.ADVICE, verdicts.WAITS_FOR):
        assert [begin for begin in told if not any(code.startswith(begin) for code in codes)] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_a_refusal_says_what_to_do_and_no_case_repeats_the_extenders_advice(case: Case) -> None:
    general = verdicts._longest(verdicts.ADVICE, case.code)
    assert case.advice != general
    assert case.advice or general


def test_the_page_is_that_of_the_cases() -> None:
    made = refusals_page.page().rstrip() + "\n"
    assert (ROOT / "docs/refusals.md").read_text() == made, "make it anew: see tests/unit/docs/refusals_page.py"
