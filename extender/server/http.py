"""uvicorn servers inside our own event loop."""

import asyncio
import contextlib
import os
import resource
import socket
import sys
from collections.abc import Iterator
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from extender.settings import Address, SettingsError

KEEP_ALIVE_S = 200
"""Longer than the 90 s after which kube-scheduler's client drops an idle connection: it must be the one to drop it,
or a question may be sent into a connection that closes. Source: net/http Transport.IdleConnTimeout of client-go."""
OTHER_FILES = 256
"""File descriptors for everything but held binds: watches, writes, answers from memory."""
GRACE_S = 5
"""Seconds for answers under way when the server ends."""


class _Gathering:
    """A transport that sends everything written in one turn of the event loop in one piece.

    uvicorn writes an answer's head and its body one after the other: two packets, that wake kube-scheduler twice.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            self._transport.write(b"".join(self._parts))
            self._parts.clear()


class _Protocol(HttpToolsProtocol):
    """uvicorn's, on such a transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(cast("asyncio.Transport", _Gathering(transport)))


class Server(uvicorn.Server):
    """A server that leaves signals to the process it is part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def connections() -> int:
    """How many connections may be held open, after raising the limit of this process as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else max(1, hard - OTHER_FILES)


def listen(name: str, where: Address) -> socket.socket:
    """A listening socket; raises SettingsError that names the setting."""
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        return socket.create_server((where.host, where.port), family=family, backlog=2048)
    except OSError as error:
        raise SettingsError(f"{name} is {where}: cannot listen there ({os.strerror(error.errno or 0)})") from error


def server(app: Any) -> Server:
    """A server of this application, to be run with `serve(sockets=…)`."""
    return Server(
        uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
    )
