"""The page of fields shows every field of our CustomResourceDefinitions, and each has a description."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.docs import crds
from tests.unit.docs.pages import page

DEFINITIONS = {made["spec"]["names"]["kind"]: made for made in crds.definitions()}
CONDITION = re.compile(r"conditions\[\]\.(type|status|reason|message|lastTransitionTime|observedGeneration)$")
"""Fields that Kubernetes itself explains (meta/v1 Condition)."""


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_the_table_is_that_of_the_definition(kind: str) -> None:
    real = f"## {kind}\n\n{crds.columns(DEFINITIONS[kind])}\n\n{crds.table(DEFINITIONS[kind])}\n"
    assert real in page("docs/crds.md").read_text(), f"put this into docs/crds.md:\n{real}"


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_every_field_is_explained(kind: str) -> None:
    rows: list[Any] = [row.strip("| ").split(" | ") for row in crds.table(DEFINITIONS[kind]).splitlines()[2:]]
    bare = [row[0].strip("`") for row in rows if len(row) < 3 or not row[2].strip()]
    assert [field for field in bare if not CONDITION.search(field)] == []
