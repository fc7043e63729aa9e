"""A real HTTP server on loopback that plays an API server's answers, awkward ones among them, in a given order."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer

from extender.sim.apiserver import bodies
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials, FixedToken, TokenSource

Play = Callable[[web.Request], Awaitable[web.StreamResponse]]
Json = dict[str, Any]


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Script:
    """What the server plays, request by request; when it is over, requests wait for ever."""

    plays: deque[Play] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client went away in the middle of an answer."""

    def then(self, *plays: Play) -> None:
        self.plays.extend(plays)

    def client(self, tokens: TokenSource | None = None, **settings: Any) -> ApiClient:
        return ApiClient(Credentials(self.url, tokens=tokens or FixedToken()), **settings)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(
            Asked(
                request.method,
                request.raw_path.partition("?")[0],
                dict(request.query),
                dict(request.headers),
                _read(body, request.content_type),
            )
        )
        if not self.plays:
            await asyncio.Event().wait()
        try:
            return await self.plays.popleft()(request)
        except asyncio.CancelledError:
            self.left.set()
            raise


def _read(body: bytes, content_type: str) -> Any:
    return bodies.decoded(body, content_type) if body else None


@asynccontextmanager
async def serving() -> AsyncIterator[Script]:
    """A server at `script.url` that plays the script."""
    script = Script()
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", script.answer)
    server = TestServer(app)
    await server.start_server(shutdown_timeout=0.1)
    script.url = str(server.make_url("")).rstrip("/")
    try:
        yield script
    finally:
        await server.close()


def ok(body: Any, code: int = 200) -> Play:
    async def play(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code, body=msgspec.json.encode(body), content_type="application/json")

    return play


def refusal(code: int, reason: str, message: str = "no", *, retry_after: int | str | None = None, **more: Any) -> Play:
    async def play(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, **more}
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        return web.Response(status=code, body=msgspec.json.encode(body), headers=headers)

    return play


def lost(done: Callable[[], None] = lambda: None) -> Play:
    """The request is done, but the connection breaks before the answer."""

    async def play(request: web.Request) -> web.StreamResponse:
        done()
        assert request.transport is not None
        request.transport.abort()
        await asyncio.Event().wait()
        raise AssertionError

    return play


def page(items: list[Json], version: str, token: str = "") -> Play:
    return ok({"kind": "List", "metadata": {"resourceVersion": version, "continue": token}, "items": items})


End = Literal["close", "late", "drop", "hold"]


def watch(*parts: bytes, end: End = "hold") -> Play:
    """A watch that sends these pieces, then is closed (`late`: a little later), is dropped, or stays silent."""

    async def play(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if end == "drop":
            assert request.transport is not None
            request.transport.abort()
        if end == "late":
            await asyncio.sleep(0.02)
        elif end != "close":
            await asyncio.Event().wait()
        return response

    return play


def line(kind: str, item: Json) -> bytes:
    return msgspec.json.encode({"type": kind, "object": item}) + b"\n"


def bookmark(version: str) -> bytes:
    return line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": version}})


def error(code: int, reason: str) -> bytes:
    return line("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "no"})


def thing(name: str, version: int, uid: str | None = None, **more: Any) -> Json:
    meta = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, **more}
