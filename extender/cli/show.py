"""Prints an answer of the status port in the format that the user chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import typer

from extender.cli.options import Output

if TYPE_CHECKING:
    from rich.console import RenderableType

Answer = TypeVar("Answer")


class Page(NamedTuple, Generic[Answer]):
    """A page of the status port, and its parts for people."""

    server: str
    path: str
    shape: type[Answer]
    render: Callable[[Answer], Iterable[RenderableType]]
    missing: str = ""
    """The error if there is no such object."""
    query: Sequence[tuple[str, str]] = ()


def show(page: Page[Answer], output: Output) -> None:
    """Print the page."""
    import msgspec

    from extender.cli import console, inspection

    body = inspection.fetch(page.server, page.path, page.missing, query=page.query)
    if output == "json":
        typer.echo(msgspec.json.format(body))
    else:
        console.show(*page.render(inspection.decode(body, page.shape)))
