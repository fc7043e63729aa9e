"""uvicorn servers inside our own event loop."""

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from extender.settings import Address, SettingsError

KEEP_ALIVE_S = 200
"""Longer than the 90 s after which kube-scheduler's client drops an idle connection: it must be the one to drop it,
or a question may be sent into a connection that closes. Source: net/http Transport.IdleConnTimeout of client-go."""
GRACE_S = 5
"""Seconds for answers under way when the server ends."""


class Server(uvicorn.Server):
    """A server that leaves signals to the process it is part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(name: str, where: Address) -> socket.socket:
    """A listening socket; raises SettingsError that names the setting."""
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        return socket.create_server((where.host, where.port), family=family, backlog=2048)
    except OSError as error:
        raise SettingsError(f"{name} is {where}: cannot listen there ({os.strerror(error.errno or 0)})") from error


def server(app: Any) -> Server:
    """A server of this application, to be run with `serve(sockets=…)`."""
    return Server(
        uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
    )
