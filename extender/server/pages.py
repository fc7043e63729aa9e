"""What people, probes and Prometheus are answered over HTTP. Bare ASGI: a refusal costs little."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from extender.server.desk import Answer, Desk, Pieces, Refusal
from extender.server.verbs import Message, Receive, Send

JSON, TEXT = "application/json", "text/plain; charset=utf-8"
LOOPBACK = frozenset(("127.0.0.1", "::1", "::ffff:127.0.0.1"))
"""Not all of 127.0.0.0/8: a mesh's proxy hands strangers' requests on from 127.0.0.6."""
HEADERS = {
    HTTPStatus.UNAUTHORIZED: [(b"www-authenticate", b"Bearer")],
    HTTPStatus.TOO_MANY_REQUESTS: [(b"retry-after", b"1")],
    HTTPStatus.SERVICE_UNAVAILABLE: [(b"retry-after", b"1")],
    HTTPStatus.METHOD_NOT_ALLOWED: [(b"allow", b"GET")],
}


class Request(NamedTuple):
    """A GET."""

    path: str
    query: str
    peer: str
    """The other side's address."""
    authorization: str
    """The header; "" if there is none."""

    @property
    def on_loopback(self) -> bool:
        """Whether it comes from this machine or pod; `kubectl port-forward` does."""
        return self.peer in LOOPBACK


class Page(NamedTuple):
    """How an answer is worked out: where, of which type, and how."""

    desk: Desk
    media_type: str
    question: str
    """Equal for those who get equal answers."""
    work: Callable[[], Pieces]


Find = Callable[[Request], Page | None]
Guard = Callable[[Request], Awaitable[None]]
"""Raises Refusal for those who may not see what they ask for."""
Probe = Callable[[], Awaitable[str]]
"""What is wrong, "" if nothing is."""


def nothing(_: Request) -> Page | None:
    """No page at all."""
    return None


async def loopback_only(request: Request) -> None:
    """The guard of ports without TLS: a token would be read by others on its way."""
    if not request.on_loopback:
        sentence = f"{request.path} shows tenants' pods: expected to be asked on loopback (kubectl port-forward), or at"
        raise Refusal(HTTPStatus.FORBIDDEN, f"{sentence} the secure port with a bearer token")


class Pages:
    """An application: probes and open pages for everybody, guarded ones for those whom the guard lets pass."""

    def __init__(
        self, guarded: Find, guard: Guard, *, everybody: Find = nothing, probes: Mapping[str, Probe] | None = None
    ) -> None:
        self._guarded, self._guard, self._everybody, self._probes = guarded, guard, everybody, probes or {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI's
        try:
            probe = self._probes.get(scope["path"])
            if probe is not None:
                why_not = await probe()
                status = HTTPStatus.SERVICE_UNAVAILABLE if why_not else HTTPStatus.OK
                await _tell(send, status, why_not or "ok")
                return
            page = await self._page(_request(scope), scope["method"])
            answer = await page.desk.ask(page.question, page.work)
        except Refusal as refusal:
            await _tell(send, refusal.status, refusal.sentence, HEADERS.get(refusal.status, ()))
            return
        await _hand_over(send, page, answer)

    async def _page(self, request: Request, method: str) -> Page:
        page = self._everybody(request)
        found = page or self._guarded(request)
        if found is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"{request.path}: no such page")
        if method != "GET":
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} {request.path}: expected GET")
        if page is None:
            await self._guard(request)
        return found


def _request(scope: Message) -> Request:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    query = scope["query_string"].decode("latin-1")
    peer = scope["client"][0] if scope["client"] else ""
    return Request(scope["path"], query, peer, given[0].decode("latin-1") if given else "")


async def _tell(send: Send, status: int, sentence: str, more: Iterable[tuple[bytes, bytes]] = ()) -> None:
    await _send(send, status, TEXT, len(body := sentence.encode()), more)
    await send({"type": "http.response.body", "body": body})


async def _hand_over(send: Send, page: Page, answer: Answer) -> None:
    """Send an answer part by part, as its reader takes it."""
    with page.desk.reading(answer):
        await page.desk.part(_send(send, HTTPStatus.OK, page.media_type, answer.size))
        for part in answer.parts:
            await page.desk.part(send({"type": "http.response.body", "body": part, "more_body": True}))
        await send({"type": "http.response.body", "body": b""})


async def _send(
    send: Send, status: int, media_type: str, length: int, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Begin an answer. It ends its connection, so that who asks again is let in again, one in each turn."""
    headers: list[Any] = [(b"content-type", media_type.encode()), (b"content-length", b"%d" % length)]
    headers += [(b"connection", b"close"), *more]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
