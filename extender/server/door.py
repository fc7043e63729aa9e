"""Accepts connections one by one, so that a crowd at one port delays no question at another."""

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from extender.server.protocol import Limits, Protocol

HANDSHAKES = 8
"""TLS handshakes under way at once: each takes up to half a millisecond of the processor."""
HANDSHAKE_S = 3.0
REST_S = 0.1
"""Seconds without accepting after an error: too many open files, mostly."""


class Door:
    """Accepts one connection in each turn of the event loop.

    Connections beyond the limits are closed at once, so that others do not queue behind them.
    """

    def __init__(
        self, listener: socket.socket, make: Callable[[], Protocol], limits: Limits, tls: ssl.SSLContext | None
    ) -> None:
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
            if self._tls is None:
                await connect(lambda: protocol, connection)
                return
            async with self._handshakes:
                await connect(lambda: protocol, connection, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S)
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
