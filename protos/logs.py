"""Logging by structlog: one key=value (or JSON) line per event on standard error; configured once at start."""

import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any, Literal, TextIO, cast

import msgspec
import structlog

from protos.contract.printable import printable

Format = Literal["auto", "console", "json"]
"""Format of log lines; auto: console on a terminal, else json."""
Level = Literal["debug", "info", "warning", "error"]
"""The lowest level that is logged."""
MOST_CALLS, LONGEST_TRACE = 30, 8000
"""Logged calls and characters of a traceback."""


class _StandardError:
    """Forwards to the present sys.stderr, which may be replaced after the logging setup."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure(form: Format, level: Level) -> None:
    """Set up structlog, also for packages that use the standard library's logging."""
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _printable,
    ]
    last: list[Any] = (
        [structlog.dev.ConsoleRenderer()]
        if console
        else [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(_json)]
    )
    stream = cast("TextIO", _StandardError())
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    foreign = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=foreign))
    logging.basicConfig(level=max(logging.WARNING, getattr(logging, level.upper())), handlers=[handler], force=True)


def _json(line: Any, **_: Any) -> str:
    return msgspec.json.encode(line, enc_hook=repr).decode()


def _printable(_: Any, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Make strings printable, so that user text cannot control the terminal; tracebacks keep their lines."""
    for key, value in line.items():
        if isinstance(value, str) and not value.isprintable():
            line[key] = "\n".join(map(printable, value.split("\n")))
    return line


def trace(error: BaseException) -> str:
    """The traceback of an error without local variables; a long one is cut to its innermost calls."""
    return "".join(traceback.format_exception(error, limit=-MOST_CALLS, chain=False))[-LONGEST_TRACE:]
