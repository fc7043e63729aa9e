"""`python -m deviceplugin`: the plugin's image runs this."""

import typer

from deviceplugin.command import command

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(command)
    app(prog_name="python -m deviceplugin")
