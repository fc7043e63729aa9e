"""The one way in which a user command fails: a sentence on standard error and its exit status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRA = ("aiohttp", "extender.sim", "extender.cli.demo")
"""What the extra `demo` is for: the images have none of it, an installation without the extra has no aiohttp."""


class CommandError(Exception):
    """Says what was wrong and what to do; shown to the user as it is."""

    status = 1


class NotInstalledError(CommandError):
    """The command needs an optional part of gangshare that is not installed."""

    status = 2


@contextmanager
def with_demo(needs: str) -> Iterator[None]:
    """Around imports of the extra `demo`: where it is missing, `needs` says what for, and the error what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(EXTRA):
            raise
        raise NotInstalledError(f"{needs}: pip install 'gangshare[demo]'") from error
