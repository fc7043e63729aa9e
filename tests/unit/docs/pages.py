"""The pages for users: their fenced blocks, tables, links and words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
OF_ROOT = tuple(ROOT / f"{name}.md" for name in ("README", "SECURITY", "CONTRIBUTING"))
OF_MANIFESTS = tuple(ROOT / f"manifests{folder}/README.md" for folder in ("", "/samples", "/helm/gangshare"))
PAGES = (*OF_ROOT, *sorted((ROOT / "docs").glob("*.md")), *OF_MANIFESTS)
EVERY = (*PAGES, ROOT / "CHANGELOG.md")
"""The changelog names what is no more, so only some checks are for it."""
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block."""

    page: Path
    language: str
    text: str


def page(name: str) -> Path:
    """A page by its path from the root."""
    return ROOT / name


def ids(value: object) -> str | None:
    """How a test names a page."""
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else None


def blocks(of: Path, language: str) -> Iterator[Block]:
    """The fenced blocks of a language, without the indentation of a list that they stand in."""
    for found in _FENCE.finditer(of.read_text()):
        if found["language"] == language:
            text = re.sub(f"^{found['indent']}", "", found["text"], flags=re.MULTILINE)
            yield Block(of, language, text)


def files(of: Path) -> dict[str, str]:
    """The manifests of a page that commands name: YAML blocks whose first line is `# NAME.yaml`."""
    named = ((re.match(r"# (\S+\.yaml)\n", block.text), block.text) for block in blocks(of, "yaml"))
    return {found[1]: text for found, text in named if found}


def links(of: Path) -> Iterator[str]:
    """The targets of all links and pictures; other sites left out."""
    for found in _LINK.finditer(of.read_text()):
        if not found["target"].startswith(("http://", "https://")):
            yield found["target"]


def anchors(of: Path) -> set[str]:
    """The fragments by which the page's headings are linked to, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", of.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table(of: Path, *header: str) -> list[tuple[str, ...]]:
    """The rows of all tables of the page with this header, cell by cell; at least one."""
    rows: list[tuple[str, ...]] = []
    inside = False
    for line in of.read_text().splitlines():
        cells = tuple(cell.strip() for cell in line.strip().strip("|").split(" | ")) if line.startswith("|") else ()
        if not cells:
            inside = False
        elif cells == header:
            inside = True
        elif inside and not set(line) <= set("|- "):
            rows.append(_cells(line))
    assert rows, f"{ids(of)} has no table {' | '.join(header)}"
    return rows


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip()[1:-1].split("|"))
