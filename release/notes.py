"""The changelog by version."""

from __future__ import annotations

import re

from release.manifests import ReleaseError

HEADING = re.compile(r"^## (\d+\.\d+\.\d+) - (unreleased|\d{4}-\d\d-\d\d)$", re.MULTILINE)


def versions(changelog: str) -> list[str]:
    """The versions that have a section, as they stand."""
    return [found[1] for found in HEADING.finditer(changelog)]


def notes(changelog: str, version: str) -> str:
    """The section of a version; raises ReleaseError if there is none."""
    found = [*HEADING.finditer(changelog)]
    for at, heading in enumerate(found):
        if heading[1] == version:
            end = found[at + 1].start() if at + 1 < len(found) else len(changelog)
            return changelog[heading.start() : end].rstrip() + "\n"
    raise ReleaseError(f"CHANGELOG.md has no section for {version}: expected '## {version} - YYYY-MM-DD'")
