"""Requests to the API server: bytes (or a struct to encode) in, bytes out, errors of `protos.kube.errors`.

The number of concurrent writes is limited, so that many Bindings do not overload the server; urgent writes (a Lease
renewal) bypass the limit. Retries: 429 by Retry-After, reads also after a 5xx, 401 once with renewed credentials. Only
the callers know which other writes may be repeated.
"""

import asyncio
import contextlib
import copy
import dataclasses
import datetime as dt
import email.utils
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

import msgspec
import structlog

from protos.contract.codec import BAD_JSON
from protos.kube import errors
from protos.kube.connection import Lost
from protos.kube.credentials import Credentials, FixedToken
from protos.kube.errors import CredentialsError
from protos.kube.http1 import ANSWER_S, Answer, Http
from protos.kube.stream import Stream, Translated

T = TypeVar("T")
Body = bytes | msgspec.Struct | Mapping[str, Any] | Sequence[Any]
"""Bytes are sent unchanged; other values are encoded as JSON."""
Params = Mapping[str, str] | Sequence[tuple[str, str]]
"""A sequence may name a parameter several times."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"

WRITES = 32
"""Maximal number of concurrent writes. Each has a connection, whose TLS handshake costs as much as several writes."""
TRIES = 5
"""Attempts of a request while the server answers with Retry-After."""
LONGEST_WAIT_S = 10.0
"""The longest wait for one Retry-After."""
DEEPEST = 10_000
"""Maximal nesting of objects' JSON. Users can write a metadata.managedFields of this depth, and one such pod must not
make whole lists unreadable. Source: sigs.k8s.io/json, the decoder of kube-apiserver."""
sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEPEST + 2_000))

log = structlog.get_logger(__name__)


class ApiClient:
    """The client of one API server; an async context manager, which raises CredentialsError for invalid URLs.

    The methods return the body of a 2xx answer and raise the errors of `protos.kube.errors`.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        user_agent: str = "gangshare",
        writes: int = WRITES,
        answer_s: float = ANSWER_S,
        permit: Callable[[], None] = lambda: None,
        warned: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`permit` is called right before each write is sent, after all waits; an error of it prevents the write.

        `warned` is called with each warning of an answer, as kubectl prints them.
        """
        self.credentials, self._permit, self._warned = credentials, permit, warned
        self._always = {"User-Agent": user_agent, "Accept": JSON}
        self._authorized: tuple[str, Mapping[str, str]] = "", self._always
        """The last authorization, and the headers with it."""
        self._most, self._writes, self._answer_s = writes, asyncio.Semaphore(writes), answer_s
        self._http: Http | None = None

    async def __aenter__(self) -> Self:
        known = self.credentials
        try:
            tls = known.tls.context if known.tls else None
            self._http = Http(
                known.server, tls=tls, server_name=known.server_name, proxy=known.proxy, answer_s=self._answer_s
            )
        except ValueError as error:
            raise CredentialsError(str(error)) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            self._http.close()

    def with_token(self, token: str) -> Self:
        """The same client with this bearer token. It shares the connections, and lives as long as this one.

        Raises CredentialsError if the connections show a client certificate, which would count before the token.
        """
        if self.credentials.tls is not None and self.credentials.tls.certificate:
            raise CredentialsError("the kubeconfig has a client certificate: expected one without, for users' tokens")
        made = copy.copy(self)
        made.credentials = dataclasses.replace(self.credentials, tokens=FixedToken(f"Bearer {token}"))
        made._authorized = "", self._always
        return made

    def expect(self, writes: int) -> None:
        """Open connections in advance for this number of concurrent writes; called once per expected write."""
        self._connections.prepare(min(writes, self._most))

    async def get(self, path: str, *, params: Params | None = None) -> bytes:
        """Read an object or a collection."""
        return await self._ask("GET", path, params=params)

    async def fetch(self, path: str, decoder: msgspec.json.Decoder[T], *, params: Params | None = None) -> T:
        """Read an object and decode it; raises BadAnswer."""
        return decoded(f"GET {path}", await self.get(path, params=params), decoder)

    async def post(
        self, path: str, body: Body, *, content_type: str = JSON, params: Params | None = None, urgent: bool = False
    ) -> bytes:
        """Create an object, or use a subresource (binding, eviction)."""
        return await self._ask("POST", path, body, params=params, content_type=content_type, urgent=urgent)

    async def put(self, path: str, body: Body, *, params: Params | None = None, urgent: bool = False) -> bytes:
        """Replace an object; its metadata.resourceVersion is the precondition."""
        return await self._ask("PUT", path, body, params=params, urgent=urgent)

    async def patch(
        self,
        path: str,
        body: Body,
        *,
        content_type: str = MERGE_PATCH,
        params: Params | None = None,
        urgent: bool = False,
    ) -> bytes:
        """Patch an object; a server-side apply needs `fieldManager` in `params`."""
        return await self._ask("PATCH", path, body, params=params, content_type=content_type, urgent=urgent)

    async def delete(self, path: str, body: Body | None = None, *, params: Params | None = None) -> bytes:
        """Delete an object; `body` may be DeleteOptions with preconditions and a grace period."""
        return await self._ask("DELETE", path, body, params=params)

    @contextlib.asynccontextmanager
    async def stream(self, path: str, *, params: Params, silence_s: float) -> AsyncIterator[Stream]:
        """Open a GET with an endless answer (a watch); raises Unavailable without an answer."""
        request = f"GET {path}"
        async with contextlib.AsyncExitStack() as stack:
            with Translated(request, write=False):
                made = self._connections.stream(_target(path, params), await self._headers())
                answer = await stack.enter_async_context(made)
            if answer.status == 401:
                await self._renewed()
            if answer.status != 200:
                with Translated(request, write=False):
                    async with asyncio.timeout(self._answer_s):
                        content = await answer.rest(self._answer_s)
                raise errors.from_answer(request, answer.status, content, write=False)
            yield Stream(request, answer, silence_s)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        params: Params | None = None,
        content_type: str = JSON,
        urgent: bool = False,
    ) -> bytes:
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        write = method != "GET"
        slot: contextlib.AbstractAsyncContextManager[Any] = (
            self._writes if write and not urgent else contextlib.nullcontext()
        )
        request, target, tries, renewed = f"{method} {path}", _target(path, params), 0, False
        while True:
            tries += 1
            async with slot:
                with Translated(request, write=write):
                    answer = await self._send(method, target, data, content_type)
            if answer.status < 300:
                for text in answer.warnings:
                    self._warned(text)
                return answer.body
            error = errors.from_answer(request, answer.status, answer.body, write=write)
            wait = _wait(answer, error, write=write)
            if answer.status == 401 and not renewed:
                renewed, wait = True, 0.0
                await self._renewed()
            if wait is None or tries == TRIES:
                try:
                    raise error
                finally:
                    del error  # it holds this frame by its traceback
            await asyncio.sleep(wait)

    async def _send(self, method: str, target: str, data: bytes | None, content_type: str) -> Answer:
        headers = await self._headers()
        if data is not None:
            headers = {**headers, "Content-Type": content_type}
        about_to = partial(self._about_to_send, method, target)
        try:
            return await self._connections.ask(method, target, headers, data, about_to=about_to)
        except Lost as lost:
            if method != "GET" or not lost.reused:
                raise
        return await self._connections.ask(method, target, headers)

    def _about_to_send(self, method: str, target: str) -> None:
        if method != "GET":
            self._permit()
            log.debug("write", method=method, path=target)

    async def _headers(self) -> Mapping[str, str]:
        authorization = await self.credentials.tokens.authorization()
        if authorization != self._authorized[0]:
            if not authorization.isascii() or not authorization.isprintable():
                raise CredentialsError("expected a token in one line of ASCII, and it is none")
            more = {"Authorization": authorization} if authorization else {}
            self._authorized = authorization, self._always | more
        return self._authorized[1]

    @property
    def _connections(self) -> Http:
        if self._http is None:
            raise RuntimeError("the ApiClient is used outside its `async with`")
        return self._http

    async def _renewed(self) -> None:
        with contextlib.suppress(CredentialsError):  # the 401 is the better message
            await self.credentials.tokens.renew()


def decoded(request: str, answer: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """The decoded answer; raises BadAnswer with `request` in its message."""
    try:
        return decoder.decode(answer)
    except BAD_JSON as error:
        raise errors.BadAnswer(request, 200, "BadAnswer", str(error)) from error


def _wait(answer: Answer, error: errors.ApiError, *, write: bool) -> float | None:
    """Seconds until a retry, None without one.

    A write is retried only after 429, because after a 5xx it may have been done. Source: client-go, rest.Request, which
    obeys Retry-After of 429 and 5xx.
    """
    busy = isinstance(error, errors.TooMany) and not isinstance(error, errors.Protected)
    if not busy and (write or answer.status < 500):
        return None
    after = _seconds(answer.headers.get(b"retry-after", b"").decode("latin-1"))
    return None if after is None else min(max(after, 0.0), LONGEST_WAIT_S)


def _seconds(after: str) -> float | None:
    """The seconds of a Retry-After header, None without one. Source: RFC 9110, 10.2.3."""
    if after.isascii() and after.isdecimal():
        return float(after[:9])
    with contextlib.suppress(ValueError):
        date = email.utils.parsedate_to_datetime(after)
        return (date - dt.datetime.now(date.tzinfo)).total_seconds()
    return None


def _target(path: str, params: Params | None) -> str:
    return f"{path}?{urlencode(params)}" if params else path
