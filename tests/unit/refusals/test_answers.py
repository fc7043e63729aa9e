"""Every sentence with which a request of kube-scheduler fails is in the table, and a test meets it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from extender.cluster.leadership import UNSEEN
from extender.server.binds import BROKEN, LEFT
from extender.server.gate import Gate
from tests.unit.docs.pages import ROOT
from tests.unit.refusals.answers import ANSWERS, Answer
from tests.unit.refusals.case import expects, literals, words

WHERE = {
    "extender/cluster/leadership.py": {"why", "why_not"},
    "extender/cluster/hand_over.py": {"why_not"},
    "extender/cluster/bind.py": {"judge", "_read"},
    "extender/server/run.py": {"_tend"},
}
"""The functions that make such sentences."""
LEAST = 3
"""Words of a sentence."""


def said() -> Iterator[str]:
    """The parts of all sentences, as they are written in the code."""
    yield from (UNSEEN, BROKEN, LEFT, Gate(lambda _: None).why)
    for file, functions in WHERE.items():
        for function in ast.walk(ast.parse((ROOT / file).read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name in functions:
                yield from _texts(function, ast.get_docstring(function, clean=False))


def _texts(function: ast.AST, docstring: str | None) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != docstring:
            yield node.value


SAID = sorted({text for text in said() if len(words(text)) >= LEAST})


@pytest.mark.parametrize("text", SAID)
def test_a_sentence_of_the_code_is_in_the_table(text: str) -> None:
    assert [answer for answer in ANSWERS if text in answer.sentence]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.sentence[:60])
def test_a_sentence_of_the_table_is_one_of_the_code(answer: Answer) -> None:
    code = [(ROOT / file).read_text() for file in (*WHERE, "extender/server/gate.py", "extender/server/binds.py")]
    told = " ".join(words(" ".join(code)))
    assert all(" ".join(words(part)) in told for part in literals(answer.sentence))


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.sentence[:60])
def test_a_test_meets_the_sentence(answer: Answer) -> None:
    file, _, name = answer.test.partition("::")
    source = (ROOT / "tests/unit/extender_shell" / file).read_text()
    assert f"def {name}(" in source
    assert expects(source, answer.sentence)
