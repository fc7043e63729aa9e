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

from extender.ui import guard, question, views
from extender.ui.board import Beat, Board, Gap, News
from extender.ui.sources import Trouble, trouble
from extender.ui.viewers import Viewer
from extender.wire import page
from protos.kube.errors import ApiError

JSON = "application/json"
EVENTS = "text/event-stream"
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class App:
    """The application."""

    def __init__(self, door: guard.Door, viewer: Callable[[str], Viewer], context: str, version: str) -> None:
        """`viewer`: what somebody sees whom the door knows; raises Trouble."""
        self._door, self._viewer = door, viewer
        self._about = context, version

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            await self._let_in(scope, receive, send)
        except ApiError as error:
            await _fail(send, trouble(error))
        except guard.RefusedError as error:
            await _fail(send, Trouble(str(error), error.status))
        except Trouble as error:
            await _fail(send, error)
        except msgspec.MsgspecError as error:
            await _fail(send, Trouble(f"the cluster's answer cannot be read ({error}): are both of one version?"))

    async def _let_in(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer those whom the door knows; raises RefusedError for strangers."""
        headers, path = scope["headers"], scope["path"]
        cookie = self._door.cookie(headers, path, scope["query_string"])
        if scope["method"] != "GET":
            raise Trouble(f"{scope['method']} is not supported: expected GET", HTTPStatus.METHOD_NOT_ALLOWED)
        if cookie:
            await _send(send, HTTPStatus.SEE_OTHER, b"", JSON, (b"location", b"/"), (b"set-cookie", cookie))
            return
        key = self._door.viewer(headers)
        match path.strip("/").split("/"):
            case ["api", *what]:
                await self._answer(self._viewer(key), what, scope["query_string"], receive, send)
            case _:
                await _static(send, path)

    async def _answer(self, viewer: Viewer, what: list[str], query: bytes, receive: Receive, send: Send) -> None:
        match what:
            case ["snapshot"]:
                await _json(send, await viewer.board.snapshot(*self._about))
            case ["stream"]:
                cursor = parse_qs(query.decode("latin-1")).get("cursor", [""])[0]
                await self._stream(viewer.board, cursor, receive, send)
            case ["links", node]:
                await _json(send, views.links(await viewer.source.node(node)))
            case ["explain", namespace, name]:
                await _json(send, views.explained(await viewer.source.explain(namespace, name)))
            case ["whatif"]:
                asked = question.read(query)
                await _json(send, views.answered(await viewer.source.what_if(asked.namespace, asked.body)))
            case _:
                raise Trouble("no such page", HTTPStatus.NOT_FOUND)

    async def _stream(self, board: Board, cursor: str, receive: Receive, send: Send) -> None:
        """Send news until the browser leaves."""
        if board.full:
            raise Trouble("too many tabs show this page: close some, or hide them", HTTPStatus.SERVICE_UNAVAILABLE)
        sending = asyncio.create_task(_news(board, cursor, send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)


async def _news(board: Board, cursor: str, send: Send) -> None:
    """Once the API server no longer takes the viewer's credentials, the stream ends: the browser may have new ones."""
    await send(_start(HTTPStatus.OK, EVENTS))
    async with contextlib.aclosing(board.stream(cursor)) as every:
        async for news in every:
            await send({"type": "http.response.body", "body": event(news), "more_body": True})
            if isinstance(news, Trouble) and news.status == HTTPStatus.UNAUTHORIZED:
                break
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


async def _json(send: Send, answer: object) -> None:
    await _send(send, HTTPStatus.OK, msgspec.json.encode(answer), JSON)


async def _send(send: Send, status: int, body: bytes, media_type: str, *more: tuple[bytes, bytes]) -> None:
    await send(_start(status, media_type, (b"content-length", b"%d" % len(body)), *more))
    await send({"type": "http.response.body", "body": body})


def _start(status: int, media_type: str, *more: tuple[bytes, bytes]) -> Message:
    headers = [(b"content-type", media_type.encode()), *guard.ALWAYS, *more]
    return {"type": "http.response.start", "status": int(status), "headers": headers}
