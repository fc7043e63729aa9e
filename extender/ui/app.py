"""Answers the browser: static files, the snapshot, the stream and explanations. Bare ASGI, read-only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from importlib import resources
from typing import Any
from urllib.parse import parse_qs

import msgspec

from extender.ui import guard
from extender.ui.board import Beat, Board, Gap, News
from extender.ui.sources import Source, Trouble, trouble
from extender.wire import page
from protos.kube.errors import ApiError

JSON = "application/json"
EVENTS = "text/event-stream"
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class App:
    """The application for one viewer."""

    def __init__(self, door: guard.Local, source: Source, board: Board, context: str, version: str) -> None:
        self._door, self._source, self._board = door, source, board
        self._about = context, version

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            if not await self._let_in(scope, send):
                await self._answer(scope, receive, send)
        except ApiError as error:
            await _fail(send, trouble(error))
        except Trouble as error:
            await _fail(send, error)

    async def _let_in(self, scope: Message, send: Send) -> bool:
        """Whether the request is answered by letting the browser in; raises Trouble for strangers."""
        if not self._door.host_fits(scope["headers"]):
            raise Trouble("the Host is not this page: open the URL that the command prints", HTTPStatus.FORBIDDEN)
        if scope["method"] != "GET":
            raise Trouble(f"{scope['method']} is not supported: expected GET", HTTPStatus.METHOD_NOT_ALLOWED)
        if scope["path"] == "/" and self._door.opens(scope["query_string"]):
            await _send(
                send, HTTPStatus.SEE_OTHER, b"", JSON, (b"location", b"/"), (b"set-cookie", self._door.cookie())
            )
            return True
        if not self._door.knows(scope["headers"]):
            raise Trouble("open the URL that the command prints: it has the token", HTTPStatus.UNAUTHORIZED)
        return False

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        match scope["path"].strip("/").split("/"):
            case ["api", "snapshot"]:
                snapshot = await self._board.snapshot(*self._about)
                await _send(send, HTTPStatus.OK, msgspec.json.encode(snapshot), JSON)
            case ["api", "stream"]:
                cursor = parse_qs(scope["query_string"].decode("latin-1")).get("cursor", [""])[0]
                await self._stream(cursor, receive, send)
            case ["api", "explain", namespace, name]:
                await _send(send, HTTPStatus.OK, await self._source.explain(namespace, name), JSON)
            case _:
                await _static(send, scope["path"])

    async def _stream(self, cursor: str, receive: Receive, send: Send) -> None:
        """Send news until the browser leaves."""
        if self._board.full:
            raise Trouble("too many tabs show this page: close some", HTTPStatus.SERVICE_UNAVAILABLE)
        sending = asyncio.create_task(self._news(cursor, send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _news(self, cursor: str, send: Send) -> None:
        await send(_start(HTTPStatus.OK, EVENTS))
        async with contextlib.aclosing(self._board.stream(cursor)) as every:
            async for news in every:
                await send({"type": "http.response.body", "body": event(news), "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def event(news: News) -> bytes:
    """News as a server-sent event. JSON has no line breaks, so an event has one line of data."""
    match news:
        case Beat():
            return b": beat\n\n"
        case Gap():
            return b"event: gap\ndata: {}\n\n"
        case Trouble():
            return b"event: trouble\ndata: " + msgspec.json.encode(page.Failure(str(news))) + b"\n\n"
    return b"event: delta\ndata: " + msgspec.json.encode(news) + b"\n\n"


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _static(send: Send, path: str) -> None:
    name = guard.static_name(path)
    file = resources.files("extender.ui").joinpath("static", *name.split("/"))
    if not name or not file.is_file():
        raise Trouble("no such page", HTTPStatus.NOT_FOUND)
    await _send(send, HTTPStatus.OK, file.read_bytes(), guard.media_type(name))


async def _fail(send: Send, error: Trouble) -> None:
    await _send(send, error.status, msgspec.json.encode(page.Failure(str(error))), JSON)


async def _send(send: Send, status: int, body: bytes, media_type: str, *more: tuple[bytes, bytes]) -> None:
    await send(_start(status, media_type, (b"content-length", b"%d" % len(body)), *more))
    await send({"type": "http.response.body", "body": body})


def _start(status: int, media_type: str, *more: tuple[bytes, bytes]) -> Message:
    headers = [(b"content-type", media_type.encode()), *guard.ALWAYS, *more]
    return {"type": "http.response.start", "status": int(status), "headers": headers}
