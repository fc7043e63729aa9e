"""HTTP/1.1 to one server over persistent connections.

It has no redirects, cookies, compression and pipelining, which requests to an API server do not need. So it takes about
half the CPU time of a general client. Each placed pod and each starting member of a gang costs such a request.
Source: RFC 9112.
"""

import asyncio
import base64
import contextlib
import functools
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple, cast
from urllib.parse import SplitResult, unquote, urlsplit

from protos.kube.connection import Connection

CONNECT_S = 10.0
"""Timeout of connecting, in seconds."""
ANSWER_S = 30.0
"""Timeout of an answer, from the sending of its request."""
IDLE_S = 75.0
"""Connections idle for longer are not reused: kube-apiserver closes them after 90 s, perhaps at that moment."""
_PORTS = {"http": 80, "https": 443}
_WARNING = re.compile(r'\d{3} [^ "]+ "((?:[^"\\]|\\.)*)"')


class NotConnected(ConnectionError):
    """Connecting has failed; the request has certainly not been sent."""


class Answer(NamedTuple):
    """A complete answer."""

    status: int
    headers: Mapping[bytes, bytes]
    """By lower-case name."""
    body: bytes

    @property
    def warnings(self) -> list[str]:
        """The texts of its header Warning. Source: RFC 9111, 5.5."""
        found = self.headers.get(b"warning")
        return [re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(found.decode("latin-1"))] if found else []


class Http:
    """The connections to the server of one URL; a path in the URL is the prefix of each target."""

    def __init__(
        self,
        url: str,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        server_name: str | None = None,
        proxy: str | None = None,
        idle_s: float = IDLE_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        """`tls` is for https URLs, by default the machine's trust; `proxy` is an http URL, perhaps with user:password.

        `tls` is called for each request; connections with a former context are not reused. Raises ValueError for
        invalid URLs.
        """
        self._url, self._proxy = _split(url, tuple(_PORTS)), _split(proxy, ("http",)) if proxy else None
        self._tls = (tls or functools.cache(ssl.create_default_context)) if self._url.scheme == "https" else None
        self._name, self._idle_s, self._answer_s = server_name or self._url.hostname, idle_s, answer_s
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        host = self._url.netloc.rpartition("@")[2]
        self._prefix, self._host = self._url.path.rstrip("/"), f"Host: {host}\r\n"
        if self._proxy and not self._tls:
            self._prefix = f"http://{host}{self._prefix}"
            self._host += _proxy_authorization(self._proxy)

    def close(self) -> None:
        """Close all connections; requests under way raise Lost."""
        for task in self._opening:
            task.cancel()
        for connection in list(self._open):
            connection.close()

    def prepare(self, count: int) -> None:
        """Open one more connection in the background, if fewer than `count` are idle or being opened."""
        if sum(map(self._reusable, self._idle)) + len(self._opening) < count:
            task = asyncio.create_task(self._open_one())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open_one(self) -> None:
        with contextlib.suppress(NotConnected):  # the next request will raise it
            self._keep(await self._connection())

    async def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        about_to: Callable[[], None] = lambda: None,
    ) -> Answer:
        """Send a request, return its complete answer; raises NotConnected, Lost, and TimeoutError without an answer.

        Cancellation closes the connection.
        `about_to` is called right before the request is sent; an error of it prevents the sending.
        """
        connection = await self._take()
        try:
            about_to()
            request = self._request(method, target, headers, body)
            await connection.send(request, whole=True, within_s=self._answer_s)
            return Answer(connection.status, connection.headers, connection.taken())
        finally:
            self._keep(connection)

    @contextlib.asynccontextmanager
    async def stream(self, target: str, headers: Mapping[str, str]) -> AsyncIterator[Connection]:
        """A GET whose answer is read in chunks; the end of the block closes its connection."""
        connection = await self._take()
        try:
            request = self._request("GET", target, headers, None)
            await connection.send(request, whole=False, within_s=self._answer_s)
            yield connection
        finally:
            connection.close()

    def _request(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if lines.count("\n") != len(headers) or not target.isascii() or not target.isprintable() or " " in target:
            raise ValueError(f"{method} {target}: expected a quoted target, and headers of one line each")
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._host}{lines}{length}\r\n".encode("latin-1")
        return head if body is None else head + body

    async def _take(self) -> Connection:
        """The connection used last, which is the most likely to be alive, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if self._reusable(connection):
                return connection
            connection.close()
        return await self._connection()

    def _reusable(self, idle: Connection) -> bool:
        fresh = asyncio.get_running_loop().time() - idle.idle_since < self._idle_s
        return idle.usable and fresh and idle.tls is self._context()

    def _context(self) -> ssl.SSLContext | None:
        return self._tls() if self._tls else None

    def _keep(self, connection: Connection) -> None:
        """Keep a connection for the next request, or close it while its answer is not complete and taken."""
        if connection.usable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.close()

    async def _connection(self) -> Connection:
        connection = Connection(self._open, self._context())
        self._open.add(connection)
        try:
            async with asyncio.timeout(CONNECT_S):
                await (
                    self._tunnel(connection, self._proxy) if self._proxy and self._tls else self._connect(connection)
                )
        except (TimeoutError, OSError, ValueError) as error:  # ValueError: an invalid host name
            connection.close()
            default = f"nothing within {CONNECT_S:g} s" if isinstance(error, TimeoutError) else type(error).__name__
            authority = _authority(self._proxy or self._url)
            raise NotConnected(f"cannot connect to {authority}: {str(error) or default}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connect(self, connection: Connection) -> None:
        host, port = _address(self._proxy or self._url)
        name = self._name if self._tls else None
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: connection, host, port, ssl=connection.tls, server_hostname=name)

    async def _tunnel(self, connection: Connection, proxy: SplitResult) -> None:
        """TLS to the server through a proxy. Source: RFC 9110, CONNECT."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: connection, *_address(proxy))
        authority = _authority(self._url)
        head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{_proxy_authorization(proxy)}\r\n"
        await connection.send(head.encode("latin-1"), whole=False, within_s=CONNECT_S)
        if connection.status != 200:
            raise OSError(f"the proxy {proxy.hostname} answers {connection.status} to CONNECT {authority}")
        tls = cast("ssl.SSLContext", connection.tls)
        secured = await loop.start_tls(transport, connection, tls, server_hostname=self._name)
        connection.continue_over(cast("asyncio.Transport", secured))


def _split(url: str, schemes: tuple[str, ...]) -> SplitResult:
    with contextlib.suppress(ValueError):  # of an invalid port
        split = urlsplit(url)
        if split.scheme in schemes and split.hostname and split.port != 0:
            return split
    raise ValueError(f"{url!r}: expected a URL {' or '.join(f'{scheme}://HOST[:PORT]' for scheme in schemes)}")


def _address(url: SplitResult) -> tuple[str, int]:
    return url.hostname or "", url.port or _PORTS[url.scheme]


def _authority(url: SplitResult) -> str:
    host, port = _address(url)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _proxy_authorization(proxy: SplitResult) -> str:
    if proxy.username is None:
        return ""
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"
