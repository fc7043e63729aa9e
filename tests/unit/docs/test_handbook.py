"""The handbook as a site: its navigation has each page once, and mkdocs builds it without a warning."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from release import handbook
from tests.unit.docs.pages import ROOT

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def named(nav: Any) -> Iterator[str]:
    """The pages of a navigation."""
    for each in nav.values() if isinstance(nav, dict) else nav:
        if isinstance(each, str):
            yield each
        else:
            yield from named(each)


def test_the_navigation_has_every_page_once() -> None:
    """A new page needs one line in mkdocs.yml."""
    pages = [path for path in handbook.sources() if path.endswith(".md") and not path.startswith("docs/adr/")]
    assert sorted(named(CONFIG["nav"])) == sorted([*pages, handbook.DECISIONS])


def test_the_page_of_decisions_has_each_of_them() -> None:
    listed = re.findall(r"^- \[.+\]\((.+)\)$", handbook.decisions(), re.MULTILINE)
    assert listed == sorted(path.name for path in (ROOT / "docs/adr").glob("*.md"))


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("Text:\n- one\n- two", "Text:\n\n- one\n- two"),
        ("- one\n  more\n  - inner\n    more", "- one\n    more\n    - inner\n        more"),
        ("1. Build:\n\n       make\n\n2. Run", "1. Build:\n\n        make\n\n2. Run"),
        (
            "10. Write:\n\n    ```yaml\n    a:\n      b: 1\n    ```",
            "10. Write:\n\n    ```yaml\n    a:\n      b: 1\n    ```",
        ),
        ("- one\n\nText\n\n    code\n", "- one\n\nText\n\n    code\n"),
        ("```text\n- no list\n  - of ours\n```", "```text\n- no list\n  - of ours\n```"),
    ],
)
def test_a_list_is_indented_for_python_markdown(given: str, made: str) -> None:
    assert "\n".join(handbook.indented(given.split("\n"))) == made


def test_mkdocs_builds_it_strictly_and_no_page_loads_anything_from_elsewhere(tmp_path: Path) -> None:
    if find_spec("mkdocs") is None and not os.environ.get("CI"):
        pytest.skip("mkdocs is missing: make setup")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(list(named(CONFIG["nav"])))
    for page in pages:
        assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=\"https?://", page.read_text()), page.name
