"""The start of a process that is the first one of its container."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

ENDED = 128 + signal.SIGTERM
"""Exit status after SIGTERM, as shells have it."""


def end_on_sigterm() -> None:
    """End at once on SIGTERM, until the process sets a handler of its own.

    The kernel drops a signal to the first process of a container that has no handler (pid_namespaces(7)). A pod that is
    deleted during its imports would run on until the kubelet kills it. So call this before imports that take long.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(ENDED))


def run(name: str, load: Callable[[], Callable[..., None]]) -> None:
    """Run the command that `load` imports, with the options of the process, and exit with its status."""
    end_on_sigterm()
    command = load()
    import typer

    from protos import usage

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(command)
    sys.exit(usage.run(app, name))
