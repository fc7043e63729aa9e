"""uvicorn's HTTP/1.1 within limits: clients that send too much or too slowly are cut off."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from extender.server.desk import Refusal
from protos.contract.bounds import HEAD_BYTES, HEADERS, Bound

CLIENT_CERTIFICATE = "client_certificate"
"""The key of the client's certificate in the state of a request, as `ssl` tells it; None without one."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one port."""

    connections: int
    per_peer: int
    """Connections from one address."""
    body: Bound
    """Bytes of one request's body."""
    together: int
    """Bytes in the bodies of all requests without an answer."""
    request_s: float
    """Seconds from the first byte of a request to its last."""
    answer_s: float
    """Seconds from there to the last byte of the answer, which a slow reader delays."""
    idle_s: float
    """Seconds without a request after which a connection is closed."""
    headers: Bound = HEADERS
    """Headers of one request."""


class Load:
    """What all connections of one port hold at the moment."""

    def __init__(self) -> None:
        self.body_bytes = 0


class _BufferedTransport:
    """A transport that sends everything written in one turn of the event loop at once.

    uvicorn writes the head and the body of an answer separately: two packets, which wake kube-scheduler twice.
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
        if self._parts and not self._transport.is_closing():
            self._transport.write(b"".join(self._parts))
        self._parts.clear()


class Protocol(HttpToolsProtocol):
    """A connection of uvicorn within limits.

    A request beyond them is answered with a sentence, and its connection is closed.
    """

    def __init__(self, limits: Limits, load: Load, **given: Any) -> None:
        super().__init__(**given)
        self._limits, self._load = limits, load
        self._in_head, self._head, self._fed, self._body = False, 0, 0, 0
        self._refused: Refusal | None = None
        """Why the request is refused before its end is read."""
        self._due = self.loop.time() + limits.idle_s
        self.left: Callable[[], None] | None = None
        """Called once, when the connection is gone."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(cast("asyncio.Transport", _BufferedTransport(transport)))
        self.app_state = {**self.app_state, CLIENT_CERTIFICATE: transport.get_extra_info("peercert")}
        if len(self.connections) > self._limits.connections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget_body()
        left, self.left = self.left, None  # it may refer to this connection, and a cycle is collected late
        if left is not None:
            left()

    def overdue(self, now: float) -> bool:
        """Whether its time is over."""
        return now > self._due

    def abort(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and self._refused is None:
            self._fed += len(data)
            if self._fed > HEAD_BYTES.most:
                self._refused = _too_large(HEAD_BYTES, self._fed)
                self.send_400_response("")

    def on_message_begin(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            raise self._refuse(Refusal(HTTPStatus.BAD_REQUEST, "expected no request before the answer to the last"))
        super().on_message_begin()
        self._in_head, self._head, self._fed = True, 0, 0
        self._due = self.loop.time() + self._limits.request_s

    def on_url(self, url: bytes) -> None:
        self._head += len(url)
        if self._head > HEAD_BYTES.most:
            raise self._refuse(_too_large(HEAD_BYTES, self._head))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value)
        if self._head > HEAD_BYTES.most:
            raise self._refuse(_too_large(HEAD_BYTES, self._head))
        if len(self.headers) >= self._limits.headers.most:
            raise self._refuse(_too_large(self._limits.headers, len(self.headers) + 1))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._count(body)
        super().on_body(body)

    def _count(self, body: bytes) -> None:
        """Count a part of the body; raises Refusal past a limit."""
        self._body += len(body)
        self._load.body_bytes += len(body)
        if self._body > self._limits.body.most:
            why = self._limits.body.exceeded(self._body)
            raise self._refuse(Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why))
        if self._load.body_bytes > self._limits.together:
            raise self._refuse(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests at once"))

    def on_message_complete(self) -> None:
        self._due = self.loop.time() + self._limits.answer_s
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """uvicorn sets a timer for an idle connection here. `overdue` needs none."""
        self._forget_body()
        self._due = self.loop.time() + self._limits.idle_s
        self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Answer why the request is refused, and close the connection."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.abort()
            return
        refused = self._refused or Refusal(HTTPStatus.BAD_REQUEST, msg)
        body = refused.sentence.encode()
        head = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[refused.status] + head + body)
        self.transport.close()

    def _refuse(self, refused: Refusal) -> Refusal:
        self._refused = refused
        return refused

    def _forget_body(self) -> None:
        self._load.body_bytes -= self._body
        self._body = 0


def _too_large(bound: Bound, value: int) -> Refusal:
    return Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, bound.exceeded(value))
