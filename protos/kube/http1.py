"""HTTP/1.1 to one server: bytes out, bytes in, over connections that are kept.

Nothing is done that our questions to an API server do not need: no redirects, cookies, compression, nor pipelining.
That takes about half the CPU time of a general client, which counts where each pod that is placed, and each
member of a gang that starts, costs such a question. Source: RFC 9112.
"""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple, cast
from urllib.parse import SplitResult, unquote, urlsplit

from protos.kube.connection import Connection, Stream

CONNECT_S = 10.0
"""Seconds until a connection that does not come about is given up."""
IDLE_S = 75.0
"""Connections idle for longer are not used again: kube-apiserver closes them after 90 s, perhaps at that moment."""
_PORTS = {"http": 80, "https": 443}


class NotConnected(ConnectionError):
    """No connection came about: the question was surely not read."""


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes


class Http:
    """Connections to the server of one URL, whose path (if any) goes before each target."""

    def __init__(
        self,
        url: str,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        server_name: str | None = None,
        proxy: str | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        """`tls` is for https URLs, by default the machine's own trust; `proxy` an http URL, perhaps with user:password.

        `tls` is called for each question: a connection made with another context than it gives now is not used again.
        Raises ValueError for URLs of another form.
        """
        self._url, self._proxy = _split(url, tuple(_PORTS)), _split(proxy, ("http",)) if proxy else None
        self._tls = (tls or _of_machine()) if self._url.scheme == "https" else None
        self._name, self._idle_s = server_name or self._url.hostname, idle_s
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._coming: set[asyncio.Task[None]] = set()
        host = self._url.netloc.rpartition("@")[2]
        self._prefix, self._host = self._url.path.rstrip("/"), f"Host: {host}\r\n"
        if self._proxy and not self._tls:
            self._prefix = f"http://{host}{self._prefix}"
            self._host += _proxy_authorization(self._proxy)

    def close(self) -> None:
        """Close all connections; questions under way end by Lost."""
        for task in self._coming:
            task.cancel()
        for connection in list(self._open):
            connection.close()

    def prepare(self, count: int) -> None:
        """Open one more connection in the background, if fewer than `count` are idle or on their way."""
        if sum(map(self._fit, self._idle)) + len(self._coming) < count:
            task = asyncio.create_task(self._prepared())
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    async def _prepared(self) -> None:
        with contextlib.suppress(NotConnected):  # the question that comes will tell
            self._kept(await self._connected())

    async def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        about_to: Callable[[], None] = lambda: None,
    ) -> Answer:
        """One question and its whole answer; raises NotConnected and Lost. Whoever cancels closes the connection.

        `about_to` is called at the last moment before the question is sent, which is not sent if that raises.
        """
        connection = await self._taken()
        try:
            about_to()
        except BaseException:
            self._kept(connection)
            raise
        try:
            await connection.send(self._question(method, target, headers, body), whole=True)
            answer = Answer(connection.status, connection.headers, connection.taken())
        except BaseException:
            connection.close()
            raise
        self._kept(connection)
        return answer

    @contextlib.asynccontextmanager
    async def stream(self, target: str, headers: Mapping[str, str]) -> AsyncIterator[Stream]:
        """A GET whose answer is read as it comes; its connection is closed at the end of the block."""
        connection = await self._taken()
        try:
            await connection.send(self._question("GET", target, headers, None), whole=False)
            yield Stream(connection)
        finally:
            connection.close()

    def _question(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if lines.count("\n") != len(headers) or not target.isascii() or not target.isprintable() or " " in target:
            raise ValueError(f"{method} {target}: expected a quoted target, and headers of one line each")
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._host}{lines}{length}\r\n".encode("latin-1")
        return head if body is None else head + body

    async def _taken(self) -> Connection:
        """The connection used last, which is the likeliest to be there still, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if self._fit(connection):
                return connection
            connection.close()
        return await self._connected()

    def _fit(self, idle: Connection) -> bool:
        fresh = asyncio.get_running_loop().time() - idle.idle_since < self._idle_s
        return idle.usable and fresh and idle.tls is self._context()

    def _context(self) -> ssl.SSLContext | None:
        return self._tls() if self._tls else None

    def _kept(self, connection: Connection) -> None:
        if connection.usable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.close()

    async def _connected(self) -> Connection:
        connection = Connection(self._open, self._context())
        self._open.add(connection)
        try:
            async with asyncio.timeout(CONNECT_S):
                await (
                    self._tunnel(connection, self._proxy) if self._proxy and self._tls else self._connect(connection)
                )
        except (TimeoutError, OSError, ValueError) as error:  # ValueError: a host that can be no name
            connection.close()
            unsaid = f"nothing within {CONNECT_S:g} s" if isinstance(error, TimeoutError) else type(error).__name__
            there = _authority(self._proxy or self._url)
            raise NotConnected(f"cannot connect to {there}: {str(error) or unsaid}") from error
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
        there = _authority(self._url)
        head = f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{_proxy_authorization(proxy)}\r\n"
        await connection.send(head.encode("latin-1"), whole=False)
        if connection.status != 200:
            raise OSError(f"the proxy {proxy.hostname} answers {connection.status} to CONNECT {there}")
        tls = cast("ssl.SSLContext", connection.tls)
        secured = await loop.start_tls(transport, connection, tls, server_hostname=self._name)
        connection.begin_anew(cast("asyncio.Transport", secured))


def _of_machine() -> Callable[[], ssl.SSLContext]:
    made = ssl.create_default_context()
    return lambda: made


def _split(url: str, schemes: tuple[str, ...]) -> SplitResult:
    with contextlib.suppress(ValueError):  # of a port that is none
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
