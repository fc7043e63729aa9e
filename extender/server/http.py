"""uvicorn servers in our own event loop, each within the limits of its port.

Where strangers can connect, connections are accepted one by one, so that a crowd at one port delays no question at
another.
"""

import asyncio
import contextlib
import os
import resource
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import msgspec
import uvicorn

from extender.server.direct import DirectProtocol, Questions
from extender.server.protocol import Limits, Load, Protocol
from extender.settings import Address
from protos.contract import bounds
from protos.contract.shared_settings import SettingsError

KEEP_ALIVE_S = 200
"""Longer than the 90 s after which Go's clients close an idle connection. If the server closed first, a question might
be sent into a closing connection. Source: net/http Transport.IdleConnTimeout of client-go."""
OTHER_FILES = 256
"""File descriptors for everything but held binds: watches, writes, other answers."""
GRACE_S = 5
"""Seconds for answers under way when the server ends."""
WAITING = 128
"""Connections that wait to be accepted."""
TURNS = 10
"""uvicorn's ticks, a tenth of a second each, between checks of the connections."""
HANDSHAKES = 8
"""TLS handshakes under way at once: each takes up to half a millisecond of the processor."""
HANDSHAKE_S = 3.0
REST_S = 0.1
"""Seconds without accepting after an error: too many open files, mostly."""
STATUS = Limits(
    connections=32,
    per_peer=16,
    body=bounds.WHAT_IF_BODY,
    together=4 << 20,
    request_s=5,
    answer_s=60,
    idle_s=10,
)
"""For people, probes and Prometheus."""
SECURE = msgspec.structs.replace(STATUS, connections=16, per_peer=8)
"""For the same callers over TLS: each new connection costs a handshake."""
AGGREGATED = msgspec.structs.replace(STATUS, per_peer=32, headers=bounds.PROXIED_HEADERS)
"""For kube-apiserver, which hands on the requests of people. Each comes with the headers of the user's groups."""
WEBHOOK = Limits(
    connections=512,
    per_peer=256,
    body=bounds.REVIEW_BODY,
    together=64 << 20,
    request_s=10,
    answer_s=10,
    idle_s=KEEP_ALIVE_S,
)
"""For kube-apiserver: a connection for each pod that is created at the same time."""


def verbs(bind_timeout_s: float) -> Limits:
    """For kube-scheduler: one peer that opens a connection for each held bind."""
    return Limits(
        connections=connections(),
        per_peer=connections(),
        body=bounds.VERB_BODY,
        together=bounds.VERB_BODY.most + (64 << 20),
        request_s=30,
        answer_s=bind_timeout_s + 60,
        idle_s=KEEP_ALIVE_S,
    )


class Door:
    """Accepts one connection in each turn of the event loop.

    Connections beyond the limits are closed at once, so that others do not queue behind them.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], Protocol],
        limits: Limits,
        tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        """`tls` is the context of the next connection."""
        listener.setblocking(False)
        self._listener, self._make, self._limits, self._tls = listener, make, limits, tls
        self._inside: dict[Protocol, str] = {}
        """The peer of each connection."""
        self._peers: Counter[str] = Counter()
        self._handshakes = asyncio.Semaphore(HANDSHAKES)
        self._starting: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(self._run())

    def check(self) -> None:
        """Raise the error that ended it, if one did."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    def close(self) -> None:
        for task in (self._task, *self._starting):
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait([self._task, *self._starting])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(REST_S)
                continue
            self._meet(connection, address[0])
            await asyncio.sleep(0)  # sock_accept returns at once while connections wait

    def _meet(self, connection: socket.socket, peer: str) -> None:
        if len(self._inside) >= self._limits.connections or self._peers[peer] >= self._limits.per_peer:
            connection.close()
            return
        protocol = self._make()
        self._inside[protocol] = peer
        self._peers[peer] += 1
        protocol.left = lambda: self._gone(protocol)
        task = asyncio.create_task(self._let_in(connection, protocol))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _let_in(self, connection: socket.socket, protocol: Protocol) -> None:
        connect = asyncio.get_running_loop().connect_accepted_socket
        try:
            tls = self._tls()
            if tls is None:
                await connect(lambda: protocol, connection)
                return
            async with self._handshakes:
                await connect(lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S)
        except OSError:
            with contextlib.suppress(OSError):
                connection.close()
            self._gone(protocol)

    def _gone(self, protocol: Protocol) -> None:
        peer = self._inside.pop(protocol, None)
        if peer is None:
            return
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]


class Server(uvicorn.Server):
    """A server of one application, to be run with `serve(sockets=…)`. It leaves signals to its process.

    It closes connections whose time is over.
    """

    def __init__(
        self,
        app: Any,
        limits: Limits,
        *,
        crowded: bool = True,
        tls: ssl.SSLContext | None = None,
        questions: Questions | None = None,
    ) -> None:
        """`crowded`: strangers can reach it, so connections are accepted one by one. With `tls` it serves over TLS.

        `questions` are answered directly, and everything else by `app`.
        """
        self._limits, self._crowded, self._load = limits, crowded, Load()
        self._doors: list[Door] = []
        made = partial(DirectProtocol, questions) if questions else Protocol
        self._make: Callable[..., Protocol] = partial(made, limits, self._load)
        config = uvicorn.Config(
            app,
            http=cast("Any", self._make),
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        config.load()
        self.use(tls)

    def use(self, tls: ssl.SSLContext | None) -> None:
        """Serve new connections with this context."""
        self.config.ssl = tls

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if not self._crowded:
            await super().startup(sockets)
            return
        for listener in sockets or ():
            self._doors.append(Door(listener, self._protocol, self._limits, lambda: self.config.ssl))
        self.servers = cast("list[asyncio.base_events.Server]", self._doors)
        self.started = True

    def _protocol(self) -> Protocol:
        given: Any = {"config": self.config, "server_state": self.server_state, "app_state": {}}
        return self._make(**given)

    async def on_tick(self, counter: int) -> bool:
        if counter % TURNS == 0:
            for door in self._doors:
                door.check()
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, Protocol) and connection.overdue(now):
                    connection.abort()
        return await super().on_tick(counter)


def connections() -> int:
    """The connections that may be open at once, after raising this process's limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else max(1, hard - OTHER_FILES)


def listen(name: str, where: Address, waiting: int = WAITING) -> socket.socket:
    """A listening socket; raises SettingsError with the flag."""
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        return socket.create_server((where.host, where.port), family=family, backlog=waiting)
    except OSError as error:
        raise SettingsError(f"{name} is {where}: cannot listen there ({os.strerror(error.errno or 0)})") from error
