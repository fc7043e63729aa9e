"""What fails is freed at once: no cycle is left for the collector, which looks at young objects only."""

import asyncio
import contextlib
import socketserver
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from protos.kube import errors
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from protos.kube.tls import Trust
from tests.cluster import pki
from tests.garbage import uncollected

POD = "/api/v1/namespaces/ns/pods/p"
TIMES = 5
Play = Callable[[socketserver.StreamRequestHandler], bool]
"""Answers one question; returns whether the connection stays."""


def _refuses(to: socketserver.StreamRequestHandler) -> bool:
    to.wfile.write(b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}")
    return True


def _drops(_: socketserver.StreamRequestHandler) -> bool:
    return False


def _breaks_off(to: socketserver.StreamRequestHandler) -> bool:
    to.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")
    return False


def _speaks_no_http(to: socketserver.StreamRequestHandler) -> bool:
    to.wfile.write(b"220 mail.example.com ESMTP\r\n\r\n")
    return True


def _is_silent(_: socketserver.StreamRequestHandler) -> bool:
    return True


@contextlib.contextmanager
def _served(play: Play, tls: ssl.SSLContext | None) -> Iterator[str]:
    """A server in threads, so that no connection of its own is counted."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                while head := self.rfile.readline():
                    if head == b"\r\n" and not (self.rfile.read(2) and play(self)):
                        return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, block_on_close = True, False

        def get_request(self):  # type: ignore[no-untyped-def]
            opened, address = super().get_request()
            return (tls.wrap_socket(opened, server_side=True) if tls else opened), address

        def handle_error(self, *_: object) -> None:
            """The client went away: it is meant to."""

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("play", [_refuses, _drops, _breaks_off, _speaks_no_http, _is_silent])
def test_a_failed_write_leaves_nothing_for_the_collector(play: Play, secure: bool, tmp_path: Path) -> None:
    there, trust = None, None
    if secure:
        authority = pki.Authority(tmp_path / "pki")
        pair = authority.issue("server", user="server", sans=["IP:127.0.0.1"])
        there = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        there.load_cert_chain(pair.certificate, pair.key)
        trust = Trust(str(authority.ca.certificate))
    with _served(play, there) as url:
        found = uvloop.run(_left(Credentials(server=url, tls=trust)))  # as the extender runs
    assert not found


async def _left(credentials: Credentials) -> Counter[str]:
    async with ApiClient(credentials, answer_s=0.1) as api:
        with uncollected() as left:
            for _ in range(TIMES):
                with pytest.raises(errors.ApiError):
                    await api.patch(POD, b"{}")
            await asyncio.sleep(0.05)
            return left()
