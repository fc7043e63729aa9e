"""uvicorn servers in our own event loop, each within the limits of its port."""

import asyncio
import contextlib
import os
import resource
import socket
import ssl
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import msgspec
import uvicorn

from extender.server.door import Door
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
STATUS = Limits(
    connections=32,
    per_peer=16,
    body=bounds.NO_BODY,
    together=0,
    request_s=5,
    answer_s=60,
    idle_s=10,
)
"""For people, probes and Prometheus."""
SECURE = msgspec.structs.replace(STATUS, connections=16, per_peer=8)
"""For the same callers over TLS: each new connection costs a handshake."""
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


class Server(uvicorn.Server):
    """A server of one application, to be run with `serve(sockets=…)`. It leaves signals to its process.

    It closes connections whose time is over.
    """

    def __init__(self, app: Any, limits: Limits, *, crowded: bool = True, tls: ssl.SSLContext | None = None) -> None:
        """`crowded`: strangers can reach it, so connections are accepted one by one. With `tls` it serves over TLS."""
        self._limits, self._crowded, self._load = limits, crowded, Load()
        self._doors: list[Door] = []
        config = uvicorn.Config(
            app,
            http=cast("Any", partial(Protocol, limits, self._load)),
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(limits.idle_s),
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        config.load()
        config.ssl = tls

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if not self._crowded:
            await super().startup(sockets)
            return
        for listener in sockets or ():
            self._doors.append(Door(listener, self._protocol, self._limits, cast("Any", self.config.ssl)))
        self.servers = cast("list[asyncio.base_events.Server]", self._doors)
        self.started = True

    def _protocol(self) -> Protocol:
        given: Any = {"config": self.config, "server_state": self.server_state, "app_state": {}}
        return Protocol(self._limits, self._load, **given)

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
    """A listening socket; raises SettingsError with the name of the setting."""
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        return socket.create_server((where.host, where.port), family=family, backlog=waiting)
    except OSError as error:
        raise SettingsError(f"{name} is {where}: cannot listen there ({os.strerror(error.errno or 0)})") from error
