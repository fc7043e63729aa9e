"""The pages and probes of the status ports, and who may see them. Bare ASGI: a refusal costs little."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

import structlog

from extender.cluster.reviews import Reviews, TooManyReviews
from extender.server.desk import Answer, Desk, Pieces, Refusal
from protos.contract.bounds import Bound
from protos.kube.errors import ApiError

JSON, TEXT = "application/json", "text/plain; charset=utf-8"
LOOPBACK = frozenset(("127.0.0.1", "::1", "::ffff:127.0.0.1"))
"""Not all of 127.0.0.0/8: the proxy of a mesh forwards requests of strangers from 127.0.0.6."""
_NAMES = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")
"""Names of this server for callers on this machine or pod. A website may resolve a name of its own to it."""
HEADERS = {
    HTTPStatus.UNAUTHORIZED: [(b"www-authenticate", b"Bearer")],
    HTTPStatus.TOO_MANY_REQUESTS: [(b"retry-after", b"1")],
    HTTPStatus.SERVICE_UNAVAILABLE: [(b"retry-after", b"1")],
    HTTPStatus.METHOD_NOT_ALLOWED: [(b"allow", b"GET")],
}

log = structlog.get_logger(__name__)


class Request(NamedTuple):
    """What a caller asks for."""

    path: str
    query: str
    peer: str
    """The address of the caller."""
    authorization: str
    """The header; "" if there is none."""
    host: str
    """The header Host, as the caller names this server."""
    origin: str
    """The web page that asks; "" if none does."""

    @property
    def on_loopback(self) -> bool:
        """Whether it comes from this machine or pod; `kubectl port-forward` does."""
        return self.peer in LOOPBACK

    @property
    def by_web_page(self) -> bool:
        """Whether a page of another server may be asking: by its origin, or by a name that it resolves to loopback."""
        return not _NAMES.fullmatch(self.host) or bool(self.origin)


class Page(NamedTuple):
    """How a page is made: its desk, media type and work."""

    desk: Desk
    media_type: str
    question: str
    """Equal questions get equal answers."""
    work: Callable[[], Pieces]
    guard: Guard | None
    """Who may see it; None: everybody."""


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class Form(NamedTuple):
    """A page that is made of the body of a POST."""

    desk: Desk
    path: str
    most: Bound
    """Bytes of the body."""
    work: Callable[[bytes], Pieces]
    guard: Guard | None

    async def filled(self, receive: Receive) -> Page:
        """The page for the body of a request; raises Refusal."""
        body = await body_of(receive, self.most.most)
        if body is None:
            expected = f"{self.most.what}: expected at most {self.most.most} {self.most.unit}"
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, expected)
        question = f"{self.path} {hashlib.sha256(body).hexdigest()}"
        return Page(self.desk, JSON, question, partial(self.work, body), self.guard)


async def body_of(receive: Receive, most: int) -> bytes | None:
    """The whole body; None if it is too long or the caller is gone."""
    parts, length, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part = message.get("body", b"")
        parts.append(part)
        length += len(part)
        more = message.get("more_body", False)
        if length > most:
            return None
    return b"".join(parts)


class WrongMethod(Refusal):
    """A page is asked by another method than its own."""

    def __init__(self, method: str, path: str, expected: str) -> None:
        super().__init__(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} {path}: expected {expected}")
        self.expected = expected


Find = Callable[[Request], Page | Form | None]
Guard = Callable[[Request], Awaitable[None]]
"""Raises Refusal for callers who may not see the page."""
Probe = Callable[[], Awaitable[str]]
"""What is wrong, "" if nothing is."""


async def loopback_only(request: Request) -> None:
    """The guard of ports without TLS, where a token could be read on its way."""
    if not request.on_loopback:
        sentence = f"{request.path} shows tenants' pods: expected to be asked on loopback (kubectl port-forward), or at"
        raise Refusal(HTTPStatus.FORBIDDEN, f"{sentence} the secure port with a bearer token")
    if request.by_web_page:
        sentence = f"{request.path} shows tenants' pods, and no web page may ask"
        raise Refusal(HTTPStatus.FORBIDDEN, f"{sentence}: expected the Host 127.0.0.1 or localhost, and no Origin")


@contextlib.contextmanager
def reviewing() -> Iterator[None]:
    """Refuse callers who cannot be reviewed now."""
    try:
        yield
    except TooManyReviews as error:
        raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, str(error)) from error
    except (ApiError, TimeoutError) as error:
        log.warning("caller_not_reviewed", error=str(error) or "no answer in time")
        raise Refusal(
            HTTPStatus.SERVICE_UNAVAILABLE, "the API server cannot check who may see this: try again"
        ) from error


def authorized(reviews: Reviews) -> Guard:
    """A guard that asks the API server who has the bearer token and whether that user may get the path."""

    async def guard(request: Request) -> None:
        scheme, _, token = request.authorization.strip().partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "expected a bearer token: Authorization: Bearer TOKEN")
        with reviewing():
            user = await reviews.user(token)
            if user is None:
                raise Refusal(HTTPStatus.UNAUTHORIZED, "the API server does not know this bearer token")
            allowed = await reviews.allowed(user, request.path)
        if not allowed:
            role = "gangshare-metrics" if request.path == "/metrics" else "gangshare-viewer"
            sentence = f"{user.username} may not get {request.path}: expected a ClusterRole with this nonResourceURL"
            raise Refusal(HTTPStatus.FORBIDDEN, f"{sentence}, as {role} has it")

    return guard


class Pages:
    """An ASGI application: probes for everybody, and each page for the callers that pass its guard."""

    def __init__(self, find: Find, probes: Mapping[str, Probe] | None = None) -> None:
        self._find, self._probes = find, probes or {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            probe = self._probes.get(scope["path"])
            if probe is not None:
                why_not = await probe()
                status = HTTPStatus.SERVICE_UNAVAILABLE if why_not else HTTPStatus.OK
                await send_text(send, status, (why_not or "ok").encode())
                return
            found = await self._found(_request(scope), scope["method"])
            page = await found.filled(receive) if isinstance(found, Form) else found
            answer = await page.desk.ask(page.question, page.work)
        except Refusal as refusal:
            more = HEADERS.get(refusal.status, ())
            if isinstance(refusal, WrongMethod):
                more = [(b"allow", refusal.expected.encode())]
            await send_text(send, refusal.status, refusal.sentence.encode(), more=more)
            return
        await send_answer(send, page.desk, page.media_type, answer)

    async def _found(self, request: Request, method: str) -> Page | Form:
        page = self._find(request)
        if page is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"{request.path}: no such page")
        expected = "POST" if isinstance(page, Form) else "GET"
        if method != expected:
            raise WrongMethod(method, request.path, expected)
        if page.guard is not None:
            await page.guard(request)
        return page


def _request(scope: Message) -> Request:
    given: dict[bytes, bytes] = dict(reversed(scope["headers"]))
    query = scope["query_string"].decode("latin-1")
    peer = scope["client"][0] if scope["client"] else ""
    headers = (given.get(name, b"").decode("latin-1") for name in (b"authorization", b"host", b"origin"))
    return Request(scope["path"], query, peer, *headers)


async def send_text(
    send: Send, status: int, text: bytes, media_type: str = TEXT, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send a short answer."""
    await _start(send, status, media_type, len(text), more)
    await send({"type": "http.response.body", "body": text})


async def send_answer(
    send: Send,
    desk: Desk,
    media_type: str,
    answer: Answer,
    more: Iterable[tuple[bytes, bytes]] = (),
    status: HTTPStatus = HTTPStatus.OK,
) -> None:
    """Send an answer part by part, as its reader takes it."""
    with desk.reading(answer):
        await desk.traffic.part(_start(send, status, media_type, answer.size, more))
        for part in answer.parts:
            await desk.traffic.part(send({"type": "http.response.body", "body": part, "more_body": True}))
        await send({"type": "http.response.body", "body": b""})


async def _start(
    send: Send, status: int, media_type: str, length: int, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Start an answer. It closes its connection, so that the next question is accepted in turn again."""
    headers: list[Any] = [(b"content-type", media_type.encode()), (b"content-length", b"%d" % length)]
    headers += [(b"connection", b"close"), *more]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
