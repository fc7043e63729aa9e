"""What tenants wrote is shown on terminals: nothing of it acts there."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.contract.printable import printable, printable_json

HIDING = ["\x00", "\x1b", "\x7f", "\x9b2J", "\n", "\r", "\t", "\u202e", "\u200b", "\u2028", "\ufeff", "\ue000"]


@pytest.mark.parametrize("sign", HIDING, ids=ascii)
def test_what_acts_on_a_terminal_or_hides_is_replaced(sign: str) -> None:
    assert printable(f"T4{sign}")[2] == "\ufffd"
    assert json.loads(printable_json(json.dumps({"model": f"T4{sign}"}).encode()))["model"][2] == "\ufffd"
    assert json.loads(printable_json(json.dumps({f"T4{sign}": 1}, ensure_ascii=False).encode()).decode())


def test_ordinary_text_stays() -> None:
    for text in ("NVIDIA A100-SXM4-80GB", "×4 … é 漢字 😀", '"quoted" \\ and / back', "\\u001b", ""):
        assert printable(text) == text
        for ascii_only in (True, False):
            written = json.dumps({text: [text, 1, None]}, ensure_ascii=ascii_only)
            assert json.loads(printable_json(written.encode())) == {text: [text, 1, None]}


@given(st.text(), st.booleans(), st.integers(0, 2))
def test_json_keeps_its_form_and_its_strings_become_printable(text: str, ascii_only: bool, indent: int) -> None:
    data = json.dumps([text, {text: 1}], ensure_ascii=ascii_only, indent=indent).encode()
    assert json.loads(printable_json(data)) == [printable(text), {printable(text): 1}]


@given(st.binary())
def test_what_is_no_json_becomes_printable_too(data: bytes) -> None:
    shown = printable_json(data).decode()
    assert all(sign.isprintable() for sign in shown if sign not in "\n\r\t")
