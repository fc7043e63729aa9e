"""One version: of the package, the commands, images, manifests, chart, pages and changelog."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
import yaml

from release.manifests import CHART, ROOT
from release.notes import versions

VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = re.compile(r"gangshare/(?:extender|plugin):(\d[\w.-]*)")
PLACES = ["README.md", "docs", "manifests", "Dockerfile.extender", "Dockerfile.plugin"]


def test_the_command_prints_it() -> None:
    if metadata.version("gangshare") != VERSION:
        pytest.fail("the installed package is of another version: make setup")
    ran = subprocess.run([sys.executable, "-m", "extender", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"gangshare {VERSION}\n"


@pytest.mark.parametrize("place", PLACES)
def test_images_have_it_as_their_tag_wherever_they_are_named(place: str) -> None:
    top = ROOT / place
    files = [top] if top.is_file() else [file for kind in ("*.yaml", "*.md") for file in top.rglob(kind)]
    named = {(file, found) for file in files for found in IMAGE.findall(file.read_text())}
    assert {found for _, found in named} <= {VERSION}, named
    assert named or place == "docs"


@pytest.mark.parametrize("part", ["extender", "plugin"])
def test_images_are_labelled_with_it(part: str) -> None:
    text = (ROOT / f"Dockerfile.{part}").read_text()
    assert f"\nARG VERSION={VERSION}\n" in text
    assert 'org.opencontainers.image.version="${VERSION}"' in text


def test_the_chart_has_it() -> None:
    file = CHART / "Chart.yaml"
    if not file.exists():
        pytest.skip("there is no chart")
    chart = yaml.safe_load(file.read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_the_changelog_begins_with_it_and_is_by_version_newest_first() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    found = versions(text)
    assert found[0] == VERSION
    assert found == sorted(found, key=lambda version: [*map(int, version.split("."))], reverse=True)
    assert len(found) == len(set(found)) == len(re.findall(r"^## ", text, re.MULTILINE))
    assert text.count("- unreleased\n") <= 1
