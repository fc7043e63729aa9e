"""Runs a command line, and tells its errors in one plain sentence: the option, its value, and what was expected."""

from __future__ import annotations

import re
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

LONGEST = 60
"""Characters of a value that an error repeats."""
_CHOICE = re.compile(r"'.*' is not one of (?P<choices>.*?)\.?", re.DOTALL)
_INPUT = re.compile(r"Input should be (?P<expected>.*?)(, unable to parse .*)?", re.DOTALL)


def run(program: typer.Typer, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run the program with these arguments (None: those of the process); returns the exit status."""
    try:
        return int(program(arguments, prog_name=name, standalone_mode=False) or 0)
    except TyperException as error:
        typer.echo(_told(error), err=True)
        return error.exit_code


def _told(error: TyperException) -> str:
    """The whole message. A command of which nothing was asked shows its help."""
    if error.message.startswith("Usage:"):
        return error.message
    context = getattr(error, "ctx", None)
    see = f"; see '{context.command_path} --help'" if context is not None else ""
    return f"error: {plain(error)}{see}"


def plain(error: TyperException) -> str:
    """The error of a command line without the words of the libraries that read it."""
    option, message = getattr(error, "param", None), error.message.removeprefix("Value error, ")
    if option is None or not message:
        return error.format_message().rstrip(".")
    name = option.opts[0] if option.opts[0].startswith("-") else option.opts[0].upper()
    if choice := _CHOICE.fullmatch(message):
        *others, last = choice["choices"].replace("'", "").split(", ")
        return f"{name}{_value(error)}: expected {' or '.join(filter(None, (', '.join(others), last)))}"
    if wrong := _INPUT.fullmatch(message):
        return f"{name}{_value(error)}: expected {wrong['expected']}"
    return f"{name}: {message}"


def _value(error: TyperException) -> str:
    """` is VALUE`, as the library's own error has it; "" if it has none."""
    errors = getattr(error.__cause__, "errors", None)
    return f" is {str(errors()[0]['input'])[:LONGEST]!r}" if errors is not None else ""
