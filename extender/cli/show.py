"""Prints an answer of the status port in the format that the user chose: once, or again whenever it changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import typer

from extender.cli.options import Output

if TYPE_CHECKING:
    from rich.console import RenderableType

Answer = TypeVar("Answer")
EVERY_S = 2.0
"""Seconds between two looks of `--watch`."""
CLEAR = "\x1b[H\x1b[2J"


class Page(NamedTuple, Generic[Answer]):
    """A page of the status port, and its parts for people."""

    server: str
    path: str
    shape: type[Answer]
    render: Callable[[Answer], Iterable[RenderableType]]
    missing: str = ""
    """The error if there is no such object."""
    query: Sequence[tuple[str, str]] = ()
    narrow: Callable[[Answer], Answer] | None = None
    """Takes the part of the answer that the user wants."""

    def read(self) -> bytes:
        """The answer, in JSON."""
        import msgspec

        from extender.cli import inspection

        body = inspection.fetch(self.server, self.path, self.missing, query=self.query)
        return body if self.narrow is None else msgspec.json.encode(self.narrow(inspection.decode(body, self.shape)))


class Readable(Protocol, Generic[Answer]):
    """What can be shown: a page of the status port, or one that is made here."""

    @property
    def shape(self) -> type[Answer]: ...

    @property
    def render(self) -> Callable[[Answer], Iterable[RenderableType]]: ...

    def read(self) -> bytes:
        """The answer, in JSON."""
        ...


class Made(NamedTuple, Generic[Answer]):
    """An answer that is made here of several."""

    make: Callable[[], Answer]
    shape: type[Answer]
    render: Callable[[Answer], Iterable[RenderableType]]

    def read(self) -> bytes:
        import msgspec

        return msgspec.json.encode(self.make())


def show(page: Readable[Answer], output: Output) -> None:
    """Print the page."""
    from extender.cli import inspection

    body = page.read()
    write(body, output, lambda: page.render(inspection.decode(body, page.shape)))


def watch(
    page: Readable[Answer],
    output: Output,
    news: Callable[[Answer], object] = lambda answer: answer,
    ended: Callable[[Answer], bool] = lambda _: False,
) -> None:
    """Print the page until it has `ended`: again and again on a terminal, elsewhere whenever its `news` change."""
    from extender.cli import inspection

    before: object = None
    terminal = sys.stdout.isatty() and output in ("table", "wide")
    while True:
        body = page.read()
        found = inspection.decode(body, page.shape)
        if terminal or news(found) != before:
            typer.echo(CLEAR if terminal else "---\n" if output == "yaml" else "\n" if before else "", nl=False)
            write(body, output, lambda answer=found: page.render(answer))  # type: ignore[misc]  # bound now
        if ended(found):
            return
        before = news(found)
        time.sleep(EVERY_S)


def write(body: bytes, output: Output, parts: Callable[[], Iterable[RenderableType]]) -> None:
    """Print JSON as it is, as YAML, or its parts for people."""
    import msgspec

    from extender.cli import console

    if output == "json":
        typer.echo(msgspec.json.format(body))
    elif output == "yaml":
        import yaml

        typer.echo(yaml.safe_dump(msgspec.json.decode(body), sort_keys=False, allow_unicode=True), nl=False)
    else:
        console.show(*parts(), wide=output == "wide")
