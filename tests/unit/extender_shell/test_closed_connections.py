"""Connections to our ports that end leave nothing for the garbage collector, however many a stranger opens."""

import asyncio
import socket
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import uvloop

from extender.server import http
from tests.cluster import pki
from tests.garbage import uncollected

TIMES = 40
QUESTION = b"GET /healthz HTTP/1.1\r\nHost: gangshare\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def _ask(port: int, sent: bytes, tls: ssl.SSLContext | None) -> None:
    for _ in range(TIMES):
        opened = socket.create_connection(("127.0.0.1", port), timeout=10)
        with tls.wrap_socket(opened, server_hostname="127.0.0.1") if tls else opened as to:
            to.sendall(sent)
            if sent.endswith(b"\r\n\r\n"):
                assert to.recv(4096).startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("sent", [QUESTION, b"\x00\x01\x02\r\n\r\n", b"GET /he", b""])
def test_a_connection_that_ended_leaves_nothing_for_the_collector(sent: bytes, secure: bool, tmp_path: Path) -> None:
    here = there = None
    if secure:
        authority = pki.Authority(tmp_path / "pki")
        pair = authority.issue("server", user="server", sans=["IP:127.0.0.1"])
        there = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        there.load_cert_chain(pair.certificate, pair.key)
        here = ssl.create_default_context(cafile=str(authority.ca.certificate))
    assert not uvloop.run(_left(sent, there, here))  # as the extender runs


async def _left(sent: bytes, there: ssl.SSLContext | None, here: ssl.SSLContext | None) -> Counter[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = http.Server(app, http.STATUS, tls=there)
    served = asyncio.create_task(server.serve(sockets=[listener]))
    port = listener.getsockname()[1]
    await asyncio.to_thread(_ask, port, sent, here)
    with uncollected() as left:
        await asyncio.to_thread(_ask, port, sent, here)
        await asyncio.sleep(0.1)
        found = left()
    server.should_exit = True
    await served
    return found
