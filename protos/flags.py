"""The command of a process, generated from its settings struct: one flag for each field with a `Flag`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import typer

from protos.contract.flag import Flag, option

S = TypeVar("S", bound=msgspec.Struct)


def command(settings: type[S], run: Callable[[S], None], refused: tuple[type[Exception], ...]) -> Callable[..., None]:
    """A function for typer that builds the settings from flags and runs the process. Its docstring is that of `run`.

    Errors of the types in `refused` end it with code 2 and their message.
    """

    def called(**given: Any) -> None:
        try:
            run(settings(**given))
        except refused as error:
            typer.echo(f"gangshare {run.__name__}: {error}", err=True)
            raise typer.Exit(2) from error

    parameters = [_parameter(*each) for each in _fields(settings)]
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__doc__, called.__name__ = run.__doc__, run.__name__
    return called


def _fields(settings: type[msgspec.Struct]) -> Iterator[tuple[msgspec.structs.FieldInfo, Any, Flag]]:
    """Each field with a flag, its type, and the flag; the struct's own fields before inherited ones."""
    hints = get_type_hints(settings, include_extras=True)
    for field in sorted(msgspec.structs.fields(settings), key=lambda field: field.name not in settings.__annotations__):
        hint = hints[field.name]
        flags = [each for each in get_args(hint)[1:] if isinstance(each, Flag)] if get_origin(hint) is Annotated else []
        if flags:
            yield field, get_args(hint)[0], flags[0]


def _parameter(field: msgspec.structs.FieldInfo, kind: Any, flag: Flag) -> Parameter:
    name = flag.name or field.name.removesuffix("_s")
    more: dict[str, Any] = {}
    default = field.default
    if flag.read is not None:
        kind, default, more["parser"] = str, flag.default, _parser(flag.read)
    if flag.metavar:
        more["metavar"] = flag.metavar
    if "  [default: " in flag.help:
        more["show_default"] = False
    written = option(name)
    if kind is bool:
        written += f"/--no-{written[2:]}"
    variables = [f"GANGSHARE_{name.upper()}", *flag.variables]
    typer_option = typer.Option(written, envvar=variables, help=flag.help, **more)
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, typer_option])


def _parser(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def parser(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return parser
