"""The handbook as a site: hooks of mkdocs (`make docs`).

mkdocs shows one folder, and reads another Markdown than GitHub. The pages stay where they are and are written for
GitHub, so these hooks give mkdocs the pages outside of `docs` too, and change on the way what it would read otherwise.
The module is loaded by its path: it imports nothing of ours.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE")
FOLDERS = {"docs": (".md", ".svg", ".png", ".css"), "manifests": (".md", ".yaml", ".json")}
DECISIONS = "docs/adr/README.md"
_FENCE = re.compile(r"(```+|~~~+)")
_ITEM = re.compile(r"(?P<marker>[-*+]|\d+[.)])(?P<gap> +)\S")
_LINK = re.compile(r"\]\((?P<target>[^)\s#]+)(?P<fragment>#[^)\s]*)?\)")
_TAB = 4
"""Columns by which Python-Markdown indents what is inside of an item of a list."""


def slug(heading: str, _separator: str) -> str:
    """The fragment of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def sources() -> Iterator[str]:
    """All files of the site, by their path from the root."""
    yield from OUTSIDE
    for folder, suffixes in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in suffixes:
                yield path.relative_to(ROOT).as_posix()


def decisions() -> str:
    """The page that lists the decisions."""
    titles = [(path.name, path.read_text().partition("\n")[0].lstrip("# ")) for path in _of_decisions()]
    return "\n".join(["# Decisions", "", *(f"- [{title}]({name})" for name, title in titles), ""])


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Headings get GitHub's fragments, and the decisions their place in the navigation."""
    config.mdx_configs["toc"] = {**config.mdx_configs.get("toc", {}), "slugify": slug}
    config.nav = _with_decisions(config.nav)
    return config


def _with_decisions(nav: Any) -> Any:
    """The navigation with all decisions below their page."""
    match nav:
        case list():
            return [_with_decisions(each) for each in nav]
        case dict():
            return {title: _with_decisions(inner) for title, inner in nav.items()}
        case str() if nav == DECISIONS:
            return [nav, *(path.relative_to(ROOT).as_posix() for path in _of_decisions())]
    return nav


def _of_decisions() -> list[Path]:
    return sorted((ROOT / "docs/adr").glob("[0-9]*.md"))


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """The files of the site instead of those of `docs_dir`."""
    from mkdocs.structure.files import File  # the tests read the rest of this module without mkdocs

    for file in [each for each in files if each.src_dir == config.docs_dir]:
        files.remove(file)
    for path in sources():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, DECISIONS, content=decisions()))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """A page as Python-Markdown needs it."""
    here = posixpath.dirname(page.file.src_uri)
    return "\n".join(indented(_LINK.sub(lambda link: _to_a_file(link, here), markdown).split("\n")))


def _to_a_file(link: re.Match[str], here: str) -> str:
    """A link to a folder leads to its README."""
    there = posixpath.normpath(posixpath.join(here, link["target"]))
    if not (ROOT / there).is_dir():
        return link[0]
    return f"]({posixpath.join(link['target'], 'README.md')}{link['fragment'] or ''})"


def indented(lines: list[str]) -> Iterator[str]:
    """The lines with lists indented by four columns for each level, and an empty line before each list."""
    lists, fence = _Lists(), ""
    for line in lines:
        text = line.lstrip(" ")
        if fence:
            yield lists.inner(line)
            fence = "" if text.rstrip() == fence else fence
            continue
        yield from lists.outer(line)
        if opened := _FENCE.match(text):
            fence = opened[1]


class _Lists:
    """The items of lists in which a line stands."""

    def __init__(self) -> None:
        self._open: list[int] = []  # for each item, the column where its text begins
        self._shift = 0
        self._in_paragraph = False

    def inner(self, line: str) -> str:
        """A line of a fenced block, moved as the line that opened it."""
        text = line.lstrip(" ")
        return " " * max(0, len(line) - len(text) + self._shift) + text if text else ""

    def outer(self, line: str) -> Iterator[str]:
        text = line.lstrip(" ")
        column = len(line) - len(text)
        if not text:
            self._in_paragraph = False
            yield ""
            return
        item = _ITEM.match(text)
        if item or not self._in_paragraph:  # else it goes on with the paragraph before it
            before = bool(self._open)
            while self._open and column < self._open[-1]:
                self._open.pop()
            if item and self._in_paragraph and not before:
                yield ""
        self._shift = _TAB * len(self._open) - (self._open[-1] if self._open else 0)
        if item and column + self._shift < _TAB * (len(self._open) + 1):
            marker, body = item["marker"], text[item.end() - 1 :]
            yield f"{' ' * _TAB * len(self._open)}{marker} {body}"
            self._open.append(column + item.end() - 1)
        else:
            yield " " * max(0, column + self._shift) + text
        self._in_paragraph = True
