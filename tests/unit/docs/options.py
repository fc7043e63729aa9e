"""The options of the commands as they really are, and the tables made of them.

`python -m tests.unit.docs.options` writes the tables into their page.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from deviceplugin.command import command as plugin
from deviceplugin.limits.command import command as limits
from deviceplugin.mps.command import command as mps
from deviceplugin.partitioner.command import command as partitioner
from deviceplugin.usage.command import command as usage
from extender.__main__ import app
from extender.cli.simulate import simulate
from extender.server.command import command as extender
from tests.unit.docs.pages import page

Command = TyperCommand | TyperGroup


def command(function: Callable[..., None]) -> Command:
    """The command that a process's own function makes."""
    alone = typer.Typer(add_completion=False)
    alone.command()(function)
    return _known(typer.main.get_command(alone))


def _known(made: object) -> Command:
    assert isinstance(made, TyperCommand | TyperGroup)
    return made


PROCESSES = {
    "gangshare extender": command(extender),
    "gangshare plugin": command(plugin),
    "gangshare usage": command(usage),
    "python -m deviceplugin.mps": command(mps),
    "python -m deviceplugin.limits": command(limits),
    "python -m deviceplugin.partitioner": command(partitioner),
}


def commands() -> dict[str, Command]:
    """Every command by the words that call it."""
    found = dict(_below("gangshare", _known(typer.main.get_command(app))))
    found |= _below("gangshare simulate", _known(typer.main.get_command(simulate)))
    images = {"python -m deviceplugin": "gangshare plugin", "python -m deviceplugin.usage": "gangshare usage"}
    return {**found, **PROCESSES, **{words: PROCESSES[process] for words, process in images.items()}}


def _below(words: str, given: Command) -> list[tuple[str, Command]]:
    under = given.commands.items() if isinstance(given, TyperGroup) else ()
    return [(words, given), *(pair for name, inner in under for pair in _below(f"{words} {name}", _known(inner)))]


def of(given: Command) -> list[TyperOption]:
    """The options of a command, `--help` left out."""
    return [option for option in given.params if isinstance(option, TyperOption) and option.name != "help"]


def table(process: str) -> str:
    """The options of a process, as the pages show them."""
    lines = ["| option | environment | default | meaning |", "|---|---|---|---|"]
    return "\n".join(lines + [_row(option) for option in of(PROCESSES[process])])


def _row(option: TyperOption) -> str:
    variables = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    meaning, _, told = (option.help or "").partition("  [default: ")
    names = ", ".join(f"`{name}`" for name in variables)
    return f"| `{option.opts[0]}` | {names} | {told.removesuffix(']') or _default(option)} | {meaning} |"


def _default(option: TyperOption) -> str:
    value = getattr(option.default, "value", option.default)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value in ("", None) else f"`{value}`"


if __name__ == "__main__":
    path, tables = page("docs/options.md"), iter(PROCESSES)
    path.write_text(re.sub(r"(?m)^\| option \|.*\n(\|.*\n)+", lambda _: f"{table(next(tables))}\n", path.read_text()))
