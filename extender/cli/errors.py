"""The error of a user command: a sentence on standard error and an exit status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from protos import process

EXTRA = ("aiohttp", "extender.sim", "extender.cli.demo")
"""Modules of the extra `demo`. The images have none of them; without the extra there is no aiohttp."""
OF_PROCESSES = (
    *("cryptography", "deviceplugin", "fastapi", "google", "grpc"),
    *("prometheus_client", "pynvml", "uvicorn", "uvloop"),
)
"""What only processes import. Each image lacks some of the other's; the kubectl plugin has only `deviceplugin`."""
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
    with _told(EXTRA, f"{needs}: pip install 'gangshare[demo]'"):
        yield


@contextmanager
def with_process(name: str) -> Iterator[None]:
    """Wraps imports of a process, which SIGTERM ends. If this installation has user commands only, the error tells."""
    process.end_on_sigterm()
    with _told(OF_PROCESSES, f"gangshare {name} is not part of this installation: pip install gangshare"):
        yield


@contextmanager
def _told(modules: tuple[str, ...], sentence: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(modules):
            raise
        raise CommandError(sentence, NOT_INSTALLED) from error
