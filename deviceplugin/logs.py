"""Logging: structlog, one line per event on standard error; configured once at start."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

Format = Literal["auto", "console", "json"]
Level = Literal["debug", "info", "warning", "error"]


def configure(form: Format, level: Level) -> None:
    """Set up structlog: key=value for people, JSON for collectors."""
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    last = (
        [structlog.dev.ConsoleRenderer()]
        if console
        else [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True), *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
