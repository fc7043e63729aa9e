"""`python -m deviceplugin`: the plugin's image runs this."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from deviceplugin import command

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(command.command)


def main(args: Sequence[str], name: str) -> None:
    """Run with these arguments; `name` is what the usage text calls the command. Ends with SystemExit."""
    app(args=list(args), prog_name=name)


if __name__ == "__main__":
    main(sys.argv[1:], "python -m deviceplugin")
