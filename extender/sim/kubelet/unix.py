"""A gRPC server on a unix socket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc


class UnixServer:
    """Serves the services that `add` adds to a server; may be started again after a stop."""

    def __init__(self, add: Callable[[grpc.aio.Server], None]) -> None:
        self._add = add
        self._server: grpc.aio.Server | None = None

    async def start(self, socket: Path) -> None:
        self._server = grpc.aio.server()
        self._add(self._server)
        self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()

    async def stop(self) -> None:
        server, self._server = self._server, None  # a reference cycle would let it outlive the event loop
        if server:
            await server.stop(None)
