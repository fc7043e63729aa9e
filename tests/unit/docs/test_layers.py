"""The drawing of the engine's layers, held against the contract that import-linter checks and against the folders."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
ENGINE = ROOT / "extender/engine"
MOST = 8
"""Layers that a reader keeps in mind."""


def _contract(container: str) -> list[str]:
    """The layers of the contract for this package, highest first."""
    tools: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    found = [it for it in tools["importlinter"]["contracts"] if it.get("containers") == [container]]
    assert len(found) == 1, f"expected one contract for {container}"
    assert found[0]["exhaustive"]
    return list(found[0]["layers"])


def _drawing() -> tuple[list[str], list[str]]:
    """The layers that the page draws, and the policies among them, highest first."""
    text = (ROOT / "docs/architecture.md").read_text()
    drawn = text.split("### Layers of the engine")[1].split("```")[1]
    return re.findall(r"(?m)^ (\w+) ", drawn), re.findall(r"(?m)^   (\w+) ", drawn)


def _folders(where: Path) -> set[str]:
    return {it.parent.name for it in where.glob("*/__init__.py")}


def test_the_drawing_shows_the_layers_that_are_checked() -> None:
    layers, policies = _drawing()
    assert layers == _contract("extender.engine")
    assert policies == _contract("extender.engine.policies")
    assert len(layers) <= MOST


def test_every_folder_of_the_engine_is_drawn_and_nothing_lies_beside_them() -> None:
    layers, policies = _drawing()
    assert set(layers) == _folders(ENGINE)
    assert set(policies) == _folders(ENGINE / "policies") | {"context"}
    assert [it.name for it in ENGINE.glob("*.py")] == ["__init__.py"]
    assert {it.name for it in (ENGINE / "policies").glob("*.py")} == {"__init__.py", "context.py"}
