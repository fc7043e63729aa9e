"""One HTTP/1.1 connection of a client: a question is one write, its answer is read by httptools.

Source: RFC 9112; httptools is the parser of Node.js for Python.
"""

import asyncio
import contextlib
import socket
import ssl
from typing import Any, cast

import httptools

BUFFER = 1 << 20
"""Bytes of a stream that wait for its reader before the server is held back."""


_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""A peer that vanished without a word is noticed in half a minute; the last value is in ms (Linux)."""


class Lost(ConnectionError):
    """The connection broke, or something other than HTTP came, after the question was sent, or while it was."""

    reused = False
    """Whether the connection had served before and no answer began: the server may just have closed it."""


class Connection(asyncio.Protocol):
    """One connection, one question at a time; called by its transport and by httptools."""

    def __init__(self, siblings: "set[Connection]", tls: ssl.SSLContext | None) -> None:
        """`tls`: what it is made with, None for plain HTTP."""
        self._siblings, self.tls = siblings, tls
        self._transport: asyncio.Transport | None = None
        self._socket: asyncio.BaseTransport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._parser: Any = None
        self._whole = self._paused = self._served = False
        self._complete = self._lasting = True
        self._gone = ""
        """Why it ended, "" while it has not: no error is held, which would hold this by its traceback."""
        self._parts: list[bytes] = []
        self._waiting = 0
        self.idle_since = 0.0
        self.status = 0
        self.headers: dict[str, str] = {}

    @property
    def usable(self) -> bool:
        """Whether another question may be sent."""
        return not self._gone and self._complete and self._lasting

    async def send(self, question: bytes, *, whole: bool) -> None:
        """Ask; comes back when the head of the answer is there, or all of it (`whole`)."""
        self._served, reused = True, self._served
        self._parser, self._whole, self._complete = httptools.HttpResponseParser(self), whole, False
        self.status, self.headers = 0, {}
        try:
            if self._transport is None or self._gone:
                raise Lost(self._gone or "the connection was closed")
            self._transport.write(question)
            while not (self._complete or (self.status and not whole)):
                await self._news()
        except Lost as lost:
            lost.reused = reused and not self.status and not self._waiting
            raise

    def begin_anew(self, transport: asyncio.Transport) -> None:
        """Go on over a tunnel, as if nothing had been asked yet."""
        self._transport, self._complete, self._lasting, self._served = transport, True, True, False

    async def more(self) -> bytes:
        while not self._parts and not self._complete:
            await self._news()
        return self.taken()

    def taken(self) -> bytes:
        """What came of the body so far, once."""
        parts, self._parts, self._waiting = self._parts, [], 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        self._siblings.discard(self)
        if self._transport is not None:
            self._transport.abort()
        self._ended("the connection was closed")

    async def _news(self) -> None:
        if self._gone:
            raise Lost(self._gone)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _ended(self, why: str) -> None:
        self._gone = self._gone or why
        self._wake()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._socket = cast("asyncio.Transport", transport), below_tls(transport)
        _keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        if self._complete:  # nothing was asked
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._ended(f"expected an HTTP answer ({error})")
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._siblings.discard(self)
        orderly = error is None and not self._gone
        if orderly and self.status and not self.headers.keys() & {"content-length", "transfer-encoding"}:
            self._complete = True  # such an answer ends with its connection
        self._ended(str(error or "") or "the server closed the connection")
        self._parser = self._transport = None  # these name this one: all are freed now, without a look for garbage
        forget_reading(self._socket)

    # httptools

    def on_message_begin(self) -> None:
        if self._complete:
            raise Lost("more came than was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # something on the way: the answer comes later
            self.headers = {}
            return
        self.status = status
        if not self._whole:
            self._wake()

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)
        if self._whole:
            return
        self._waiting += len(part)
        if self._waiting > BUFFER and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self.status:
            self._complete, self._lasting = True, self._parser.should_keep_alive()
            self._wake()


class Stream:
    """An answer under way: its status and headers came."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.status, self.headers = connection.status, connection.headers

    async def chunk(self) -> bytes:
        """What came since the last call, once anything did; nothing at the answer's end. Raises Lost."""
        return await self._connection.more()

    async def rest(self) -> bytes:
        """All the rest."""
        chunks = []
        while chunk := await self.chunk():
            chunks.append(chunk)
        return b"".join(chunks)


def below_tls(transport: asyncio.BaseTransport) -> asyncio.BaseTransport:
    """The transport of the socket itself: below that of TLS where there is one. To be asked when it is made."""
    secured = getattr(transport, "_ssl_protocol", None)
    return getattr(secured, "_transport", None) or transport


def forget_reading(closed: asyncio.BaseTransport | None) -> None:
    """Free a closed transport of a socket: asyncio's names one of its own methods, which names it.

    Source: CPython, `asyncio.selector_events._SelectorSocketTransport`.
    """
    if closed is not None:
        vars(closed).pop("_read_ready_cb", None)


def _keep_alive(made: socket.socket | None) -> None:
    if made is None:
        return
    with contextlib.suppress(OSError):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
