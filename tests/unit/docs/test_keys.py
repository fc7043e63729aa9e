"""The pages of keys have every name of ours that users meet, and what to write instead of those of other products."""

from __future__ import annotations

from protos.contract import mistakes, names
from tests.unit.docs import foreign_keys, keys_page
from tests.unit.docs.pages import page

TOLD = {key.name for section in keys_page.SECTIONS for key in section.keys}


def test_the_page_is_made_of_the_table() -> None:
    made = keys_page.page()
    assert page("docs/keys.md").read_text() == made, "run: python -m tests.unit.docs.keys_page > docs/keys.md"


def test_no_key_is_left_out() -> None:
    """A new constant of `names` needs a row."""
    keys = {value for value in vars(names).values() if isinstance(value, str) and value.startswith(f"{names.DOMAIN}/")}
    variables = {value for name, value in vars(names).items() if name.startswith("ENV_")}
    assert (keys | variables | mistakes.ANNOTATIONS) - TOLD == set()


def test_what_to_write_instead_is_what_the_extender_says() -> None:
    real = foreign_keys.table()
    assert real in page("docs/coming-from.md").read_text(), f"put this into docs/coming-from.md:\n{real}"
