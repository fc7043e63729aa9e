"""Every bound on what others write is told in docs/limits.md."""

import pytest

from protos.contract import bounds
from protos.contract.bounds import Bound
from tests.unit.docs.pages import ROOT

BOUNDS = [value for value in vars(bounds).values() if isinstance(value, Bound)]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.what)
def test_a_bound_stands_in_the_table(bound: Bound) -> None:
    most = f"{bound.most:,} {bound.unit}".strip()
    assert f"| {bound.what} | {most} |" in (ROOT / "docs" / "limits.md").read_text()
