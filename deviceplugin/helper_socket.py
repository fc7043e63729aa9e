"""The socket of a helper with more rights than the plugin: few connections, one request each, one line both ways.

Only processes of the helper's own user are answered. The work runs in a worker thread, one request at a time: if one
hangs, further requests are refused, not queued.
"""

import asyncio
import contextlib
import os
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import structlog

from protos.contract.bounds import HELPER_LINE
from protos.contract.shared_settings import SettingsError

log = structlog.get_logger()

END = b"\n"
CONNECTIONS = 16
REQUEST_S = 5.0
"""Seconds until a request must be complete."""
BUSY_S = 3.0
"""Longest wait for the work of an earlier request."""
CREDENTIALS = struct.Struct("3i")
"""ucred of unix(7): process, user and group."""


class HelperError(Exception):
    """The helper does not answer; the message says why."""


def peer_user(connection: socket.socket) -> int:
    """The user number of the process at the other end."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    user: int = CREDENTIALS.unpack(found)[1]
    return user


class Server:
    """Serves one helper, as an async context manager; raises SettingsError if it cannot listen."""

    def __init__(self, path: Path, answer: Callable[[bytes], bytes], busy: bytes) -> None:
        """`answer` makes a line of a line, and blocks; `busy` is the line if an earlier request is not answered."""
        self._path, self._answer, self._busy = path, answer, busy
        self._turn = asyncio.Lock()
        self._open = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> None:
        before = os.umask(0o177)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.parent.chmod(0o700)
            self._server = await asyncio.start_unix_server(self._serve, self._path, limit=HELPER_LINE.most)
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
                text = await reader.readuntil(END)
            writer.write(await self._answered(text))
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

    async def _answered(self, text: bytes) -> bytes:
        try:
            async with asyncio.timeout(BUSY_S):
                await self._turn.acquire()
        except TimeoutError:
            return self._busy
        try:
            return await asyncio.to_thread(self._answer, text)
        finally:
            self._turn.release()


async def run(server: Server) -> None:
    """Serve until SIGTERM or SIGINT; raises SettingsError."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with server:
        with contextlib.suppress(asyncio.CancelledError):
            await stop.wait()


async def asked(path: Path, line: bytes, patience: float, component: str) -> bytes:
    """The answer of the helper at a socket; raises HelperError, when patience (in seconds) is over at the latest."""
    try:
        async with asyncio.timeout(patience):
            return await _exchange(path, line)
    except TimeoutError as error:
        raise HelperError(f"it does not answer in {patience:g} s") from error
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise HelperError(f"it does not answer at {path}: is components/{component} there?") from error


async def _exchange(path: Path, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path, limit=HELPER_LINE.most)
    try:
        if (user := peer_user(writer.get_extra_info("socket"))) != os.geteuid():
            raise HelperError(f"user {user} listens at {path}: expected {os.geteuid()}")
        writer.write(line)
        await writer.drain()
        return await reader.readuntil(END)
    finally:
        writer.transport.abort()
