"""`python -m deviceplugin.partitioner`: the helper that makes MIG instances, in the plugin's image."""

import sys

import typer

from deviceplugin.partitioner.command import command
from protos import usage

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(command)
    sys.exit(usage.run(app, "python -m deviceplugin.partitioner"))
