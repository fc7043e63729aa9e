"""`gangshare whatif`: the options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from extender.cli.options import DEFAULT_SERVER, Namespace, Output, Server

STDIN = "-"


def whatif(
    file: Annotated[
        Path, typer.Option("--filename", "-f", help="File with pods, jobs and PodGroups; - for standard input.")
    ],
    namespace: Namespace = "default",
    gang: Annotated[
        bool, typer.Option("--gang", help="The pods of each object that name no group start together.")
    ] = False,
    with_node: Annotated[
        list[str] | None,
        typer.Option(
            "--with-node",
            metavar="NODE[=N]",
            help="Show also what N further nodes like this one would change. May be repeated.",
        ),
    ] = None,
    output: Output = "table",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show whether pods would start now, and if not, when and why. Nothing is created."""
    from extender.cli import inspection, manifests
    from extender.cli import whatif as view
    from extender.cli.show import write
    from extender.wire import whatif as wire

    text, source = _read(file)
    further = with_node or []
    body = view.body(manifests.read(text, source, namespace, gang=gang), further)
    answer = inspection.fetch(server, "whatif", timeout_s=view.TIMEOUT_S, body=body)
    write(answer, output, lambda: view.render(inspection.decode(answer, wire.Status), further=further))


def _read(file: Path) -> tuple[str, str]:
    """The text, and how errors name it; raises CommandError."""
    from extender.cli.errors import CommandError
    from extender.cli.manifests import MOST_BYTES

    if str(file) == STDIN:
        return sys.stdin.read(MOST_BYTES + 1), "standard input"
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(MOST_BYTES + 1), str(file)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error
