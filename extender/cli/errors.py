"""The error of a user command: a sentence on standard error and an exit status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRA = ("aiohttp", "extender.sim", "extender.cli.demo")
"""Modules of the extra `demo`. The images have none of them; without the extra there is no aiohttp."""
NOT_INSTALLED = 2
"""Exit status if an optional part of gangshare is not installed."""


class CommandError(Exception):
    """Says what was wrong and what to do; the user sees the text as it is."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


@contextmanager
def with_demo(needs: str) -> Iterator[None]:
    """Wraps imports of the extra `demo`. If it is missing, the error says what `needs` it and what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(EXTRA):
            raise
        raise CommandError(f"{needs}: pip install 'gangshare[demo]'", NOT_INSTALLED) from error
