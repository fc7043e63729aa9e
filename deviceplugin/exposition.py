"""Metrics over HTTP, for Prometheus, and pages beside them: bounded, one request a connection, on the event loop."""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from protos.contract.bounds import HEAD_BYTES
from protos.contract.shared_settings import SettingsError

CONNECTIONS, OF_ONE_PEER = 16, 8
"""The most connections in all, and of one peer; further connections are closed at once."""
EXCHANGE_S = 5.0
"""Seconds from the connection to the last byte of the answer."""


class Page(NamedTuple):
    """What is answered to a GET of a path."""

    kind: str
    """The Content-Type."""
    make: Callable[[], bytes]


ALIVE = Page("text/plain", lambda: b"ok\n")
"""For probes: whoever reads it knows that the event loop runs."""


class Exposition:
    """Serves the registry as an async context manager; raises SettingsError if it cannot listen on the port."""

    def __init__(
        self,
        registry: CollectorRegistry,
        port: int,
        pages: Mapping[bytes, Page] | None = None,
        option: str = "--metrics-port",
    ) -> None:
        """`pages` are served by path, beside the metrics; `option` is that of the port, for the error."""
        metrics = Page(CONTENT_TYPE_LATEST, lambda: generate_latest(registry))
        self._pages = {b"/metrics": metrics, b"/": metrics, b"/healthz": ALIVE, **(pages or {})}
        self._port, self._option = port, option
        self._peers: Counter[str] = Counter()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> int:
        """Returns the port."""
        try:
            self._server = await asyncio.start_server(self._serve, "0.0.0.0", self._port, limit=HEAD_BYTES.most)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise SettingsError(f"{self._option} is {self._port}: expected a free port ({why})") from error
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer: str = (writer.get_extra_info("peername") or ("",))[0]
        if self._peers.total() >= CONNECTIONS or self._peers[peer] >= OF_ONE_PEER:
            writer.transport.abort()
            return
        self._peers[peer] += 1
        try:
            async with asyncio.timeout(EXCHANGE_S):
                await self._answer(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._peers[peer] -= 1
            if not self._peers[peer]:
                del self._peers[peer]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            status, kind, body = b"405 Method Not Allowed", "text/plain", b"expected GET\n"
        elif (page := self._pages.get(path)) is None:
            expected = b" or ".join(known for known in self._pages if known != b"/")
            status, kind, body = b"404 Not Found", "text/plain", b"expected %b\n" % expected
        else:
            status, kind, body = b"200 OK", page.kind, page.make()
        writer.write(
            b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            % (status, kind.encode(), len(body))
        )
        writer.write(body)
        await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
