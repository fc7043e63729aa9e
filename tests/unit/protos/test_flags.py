"""The command of a process follows from its settings: each field with a flag is given by it and by the environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from deviceplugin.limits.settings import Settings as LimitsSettings
from deviceplugin.mps.settings import Settings as MpsSettings
from deviceplugin.partitioner.settings import Settings as PartitionerSettings
from deviceplugin.settings import Settings as PluginSettings
from deviceplugin.usage.settings import Settings as UsageSettings
from extender.settings import Settings as ExtenderSettings
from protos import flags
from protos.contract.flag import Flag, listed


class RefusedError(Exception):
    """What the process says of itself."""


def even(text: str) -> int:
    if int(text) % 2:
        raise ValueError(f"{text!r}: expected an even number")
    return int(text)


class Some(msgspec.Struct, frozen=True, kw_only=True):
    delay_s: Annotated[float, Flag("Seconds.")] = 1.5
    kind: Annotated[Literal["one", "other"], Flag("Which.")] = "one"
    names: Annotated[tuple[str, ...], Flag("By comma.", listed, default="a,b")] = ("a", "b")
    pairs: Annotated[int, Flag("Even.", even, "N", "2", name="count")] = 2
    on: Annotated[bool, Flag("Whether.")] = True
    inner: int = 3


def ran(*args: str, env: dict[str, str] | None = None, refuse: bool = False) -> tuple[list[Some], Any]:
    """The settings that the process got, and how its command ended."""
    got: list[Some] = []

    def process(settings: Some) -> None:
        if refuse:
            raise RefusedError("no such cluster")
        got.append(settings)

    app = typer.Typer(rich_markup_mode=None)
    app.command()(flags.command(Some, process, (RefusedError,)))
    return got, CliRunner().invoke(app, args, env=env)


def test_without_flags_the_settings_are_those_of_the_struct() -> None:
    assert ran()[0] == [Some()]


@pytest.mark.parametrize(
    ("args", "env", "expected"),
    [
        (["--delay", "2"], {}, Some(delay_s=2.0)),
        (["--kind=other"], {}, Some(kind="other")),
        (["--names", " x, ,y"], {}, Some(names=("x", "y"))),
        (["--count", "4"], {}, Some(pairs=4)),
        (["--no-on"], {}, Some(on=False)),
        ([], {"GANGSHARE_DELAY": "3", "GANGSHARE_ON": "false"}, Some(delay_s=3, on=False)),
        (["--count", "8"], {"GANGSHARE_COUNT": "6"}, Some(pairs=8)),
    ],
)  # fmt: skip
def test_a_flag_goes_before_the_environment(args: list[str], env: dict[str, str], expected: Some) -> None:
    assert ran(*args, env=env)[0] == [expected]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--count", "3"], "expected an even number"),
        (["--kind", "none"], "'none' is not one of"),
        (["--inner", "4"], "--inner"),
    ],
)
def test_what_cannot_be_read_is_named(args: list[str], told: str) -> None:
    got, result = ran(*args)
    assert (got, result.exit_code) == ([], 2)
    assert told in " ".join(result.output.split())


def test_what_the_process_refuses_is_a_sentence() -> None:
    result = ran(refuse=True)[1]
    assert result.exit_code == 2
    assert "gangshare process: no such cluster" in result.output


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        (ExtenderSettings, {}),
        (LimitsSettings, {}),
        (MpsSettings, {}),
        (PartitionerSettings, {}),
        (PluginSettings, {"NODE_NAME": "n1"}),
        (UsageSettings, {"NODE_NAME": "n1"}),
    ],
)
def test_the_default_that_is_written_is_the_default_of_the_field(
    settings: Callable[..., Any], needed: dict[str, str]
) -> None:
    got: list[Any] = []
    app = typer.Typer(rich_markup_mode=None)
    app.command()(flags.command(settings, got.append, ()))  # type: ignore[arg-type]  # the constructor is the type
    CliRunner().invoke(app, [], env=needed, catch_exceptions=False)
    assert got == [settings(node_name="n1") if needed else settings()]
