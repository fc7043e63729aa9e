"""The helper's socket: few connections, one request each, from processes of the helper's own user only.

The driver's calls run one at a time in a worker thread. If one hangs, further requests are refused, not queued.
"""

import asyncio
import contextlib
import os
import signal
import socket
import struct
from pathlib import Path

import structlog

from deviceplugin.limits import protocol
from deviceplugin.limits.helper import Helper
from deviceplugin.limits.protocol import Answer, Hello, LimitError
from protos.contract.bounds import LIMITS_LINE
from protos.contract.shared_settings import SettingsError

log = structlog.get_logger()

CONNECTIONS = 16
REQUEST_S = 5.0
"""Seconds until a request must be complete."""
BUSY_S = 3.0
"""Longest wait for the driver's answer to an earlier request."""
CREDENTIALS = struct.Struct("3i")
"""ucred of unix(7): process, user and group."""


def peer_user(connection: socket.socket) -> int:
    """The user number of the process at the other end."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    user: int = CREDENTIALS.unpack(found)[1]
    return user


class Server:
    """Serves one helper, as an async context manager; raises SettingsError if it cannot listen."""

    def __init__(self, path: Path, helper: Helper) -> None:
        self._path, self._helper = path, helper
        self._turn = asyncio.Lock()
        self._open = 0
        self._lacks: str | None = None
        """What lacked when the plugin last asked whether limits can be set; None before."""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> None:
        before = os.umask(0o177)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.parent.chmod(0o700)
            self._server = await asyncio.start_unix_server(self._serve, self._path, limit=LIMITS_LINE.most)
        except OSError as error:
            raise SettingsError(
                f"--socket is {self._path}: expected a place for a socket ({error.strerror})"
            ) from error
        finally:
            os.umask(before)

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= CONNECTIONS or not self._known(writer):
            writer.transport.abort()
            return
        self._open += 1
        try:
            async with asyncio.timeout(REQUEST_S):
                text = await reader.readuntil(protocol.END)
            writer.write(protocol.line(Answer(why=await self._answer(text))))
            async with asyncio.timeout(REQUEST_S):
                await writer.drain()
            writer.close()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._open -= 1

    def _known(self, writer: asyncio.StreamWriter) -> bool:
        user = peer_user(writer.get_extra_info("socket"))
        if user != os.geteuid():
            log.warning("peer_refused", user=user)
        return user == os.geteuid()

    async def _answer(self, text: bytes) -> str:
        try:
            request = protocol.request(text)
            async with asyncio.timeout(BUSY_S):
                await self._turn.acquire()
        except LimitError as error:
            return str(error)
        except TimeoutError:
            return f"the driver has not answered an earlier request for {BUSY_S:g} s"
        try:
            why = await asyncio.to_thread(self._helper.answer, request)
        finally:
            self._turn.release()
        if not isinstance(request, Hello):
            log.info("asked", request=request, why=why)
        elif why != self._lacks:
            self._lacks = why
            log.info("proof", lacks=why)
        return why


async def run(path: Path, helper: Helper) -> None:
    """Serve until SIGTERM or SIGINT; raises SettingsError."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Server(path, helper):
        with contextlib.suppress(asyncio.CancelledError):
            await stop.wait()
