"""Questions that are answered without ASGI, beside pages that are not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import msgspec
import pytest

from extender.server.protocol import Protocol
from protos.contract.bounds import Bound
from tests.unit.extender_shell.test_limits import LIMITS, OK, Port, ports
from tests.unit.extender_shell.world import until

POST = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n"


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    async with ports(LIMITS, direct=True) as made:
        yield made


@pytest.mark.parametrize("path", [b"/", b"/?timeout=5s", b"/page"])
async def test_questions_and_pages_share_a_connection(port: Port, path: bytes) -> None:
    client = await port.open()
    for asked in (b"/", path, b"/page", path):
        told = await client.asked(b"POST " + asked + b" HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi")
        assert told.startswith(OK)
        assert b"content-length: 2\r\n" in told.lower()
    assert (port.asked, port.body_read) == (4, 8)


@pytest.mark.parametrize(
    ("head", "says"),
    [(b"POST / HTTP/1.0\r\nContent-Length: 2\r\n", True), (POST + b"Connection: close\r\n", True), (POST, False)],
)
async def test_a_connection_is_kept_unless_its_client_wants_it_closed(port: Port, head: bytes, says: bool) -> None:
    client = await port.open()
    told = await client.asked(head + b"\r\nhi")
    assert told.startswith(OK)
    assert (b"connection: close" in told) is says
    assert bool(await until(lambda: not port.inside, "closed")) if says else port.inside == 1


async def test_a_body_longer_than_uvicorns_buffer_is_read_to_its_end() -> None:
    """So long is a question about every node of a large cluster."""
    most = Bound("the body", 1 << 20, "bytes")
    async with ports(msgspec.structs.replace(LIMITS, body=most, together=most.most), direct=True) as port:
        client = await port.open()
        for _ in range(2):
            head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % most.most
            assert (await client.asked(head + b"x" * most.most)).startswith(OK)
        assert port.body_read == 2 * most.most


async def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(port: Port) -> None:
    client = await port.open()
    await client.send(POST + b"Expect: 100-continue\r\n\r\n")
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await client.asked(b"hi")).startswith(OK)


async def test_a_question_finds_out_that_its_caller_is_gone(port: Port) -> None:
    port.answers.clear()
    client = await port.open()
    await client.send(POST + b"\r\nhi")
    await until(lambda: port.asked, "it is asked")
    assert port.left == 0
    client.writer.close()
    await until(lambda: port.left, "it knows")
    assert port.left == 1
    port.answers.set()
    assert (await (await port.open()).asked(POST + b"\r\nhi")).startswith(OK)


async def test_a_server_that_ends_waits_for_the_answer_and_closes_the_connection(port: Port) -> None:
    port.answers.clear()
    client = await port.open()
    await client.send(POST + b"\r\nhi")
    await until(lambda: port.asked, "it is asked")
    port.server.should_exit = True
    (connection,) = port.server.server_state.connections
    await until(lambda: not cast("Protocol", connection).cycle.keep_alive, "the server ends")
    port.answers.set()
    told = await client.answer()
    assert told.startswith(OK)
    assert b"connection: close" in told
