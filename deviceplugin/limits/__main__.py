"""`python -m deviceplugin.limits`: the helper that sets limits, in the plugin's image."""

import sys

import typer

from deviceplugin.limits.command import command
from protos import usage

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(command)
    sys.exit(usage.run(app, "python -m deviceplugin.limits"))
