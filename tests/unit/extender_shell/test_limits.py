"""What a port takes at most: heads, bodies, connections, time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from extender.server import http, protocol
from extender.server.direct import Answer, Gone
from extender.server.protocol import Limits
from extender.settings import Address
from protos.contract import bounds
from protos.contract.bounds import Bound
from tests.unit.extender_shell.world import until

LIMITS = Limits(
    connections=4,
    per_peer=3,
    body=Bound("the body", 1000, "bytes"),
    together=1500,
    request_s=5,
    answer_s=5,
    idle_s=5,
)
OK = b"HTTP/1.1 200 OK"


class Port:
    """A server within limits whose application reads the body and may be told to wait."""

    def __init__(self, limits: Limits, *, direct: bool = False) -> None:
        """`direct`: requests for `/` are answered without ASGI."""
        self.answers, self.asked, self.body_read, self.left = asyncio.Event(), 0, 0, 0
        self.answers.set()
        self.server = http.Server(self._app, limits, questions={b"/": self._question} if direct else None)
        self.socket = http.listen("listen", Address("127.0.0.1", 0))
        self.where: tuple[str, int] = self.socket.getsockname()[:2]
        self.running = asyncio.create_task(self.server.serve(sockets=[self.socket]))

    async def _app(self, _: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            self.body_read += len(message.get("body", b""))
            more = message.get("more_body", False)
        await self.answers.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def _question(self, _: bytes, body: bytes, gone: Gone) -> Answer:
        self.asked += 1
        self.body_read += len(body)
        left = asyncio.create_task(gone())
        await asyncio.wait({left, asyncio.create_task(self.answers.wait())}, return_when=asyncio.FIRST_COMPLETED)
        self.left += left.done()
        left.cancel()
        return 200, b"text/plain", b"ok"

    async def open(self, *, source: str = "127.0.0.1") -> Client:
        reader, writer = await asyncio.open_connection(*self.where, local_addr=(source, 0))
        return Client(reader, writer)

    @property
    def inside(self) -> int:
        return len(self.server.server_state.connections)


class Client:
    """A connection of somebody who may be ill-behaved."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> bytes:
        """What came until the connection ended, or a whole answer of ours."""
        found = b""
        try:
            while not found.endswith(b"ok"):
                part = await asyncio.wait_for(self.reader.read(1 << 16), 30)
                if not part:
                    break
                found += part
        except ConnectionError:
            pass
        return found

    async def asked(self, data: bytes = b"GET / HTTP/1.1\r\n\r\n") -> bytes:
        await self.send(data)
        return await self.answer()


@pytest.fixture(params=["asgi", "direct"])
async def port(request: pytest.FixtureRequest) -> AsyncIterator[Port]:
    async with ports(LIMITS, direct=request.param == "direct") as made:
        yield made


@asynccontextmanager
async def ports(limits: Limits, *, direct: bool = False) -> AsyncIterator[Port]:
    made = Port(limits, direct=direct)
    yield made
    made.answers.set()
    made.server.should_exit = True
    await made.running


async def test_an_ordinary_request_is_answered_again_and_again(port: Port) -> None:
    client = await port.open()
    for _ in range(3):
        assert (await client.asked()).startswith(OK)


async def test_many_headers_are_refused_before_they_are_kept(port: Port) -> None:
    client = await port.open()
    told = await client.asked(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 100_000 + b"\r\n")
    assert told.startswith(b"HTTP/1.1 431")
    assert b"headers of a request: 65, expected at most 64" in told
    assert port.asked == 0


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\na: ", b"GET / HTTP/1.1\r\na"])
async def test_a_head_without_end_is_refused(port: Port, start: bytes) -> None:
    client = await port.open()
    await client.send(start)
    for _ in range(4):
        client.writer.write(b"a" * 10_000)
        await asyncio.sleep(0.01)
    told = await client.answer()
    assert told.startswith(b"HTTP/1.1 431")
    assert f"expected at most {bounds.HEAD_BYTES.most} bytes".encode() in told


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_past_its_bound_is_refused(port: Port, chunked: bool) -> None:
    client = await port.open()
    if chunked:
        chunks = b"64\r\n%b\r\n" % (b"x" * 100) * 20
        told = await client.asked(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
    else:
        told = await client.asked(b"POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n" + b"x" * 2000)
    assert told.startswith(b"HTTP/1.1 413")
    assert b"expected at most 1000 bytes" in told


async def test_bodies_are_bounded_together_and_their_room_comes_back(port: Port) -> None:
    port.answers.clear()
    one, two = await port.open(), await port.open()
    whole = b"POST / HTTP/1.1\r\nContent-Length: 900\r\n\r\n" + b"x" * 900
    await one.send(whole)
    await until(lambda: port.body_read == 900, "the first was read")
    assert (await two.asked(whole)).startswith(b"HTTP/1.1 503")
    port.answers.set()
    assert (await one.answer()).startswith(OK)
    assert (await (await port.open()).asked(whole)).startswith(OK)


async def test_a_client_that_leaves_gives_the_room_of_its_body_back(port: Port) -> None:
    client = await port.open()
    await client.send(b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + b"x" * 900)
    await until(lambda: port.server._load.body_bytes == 900, "read")
    client.writer.close()
    await until(lambda: not port.server._load.body_bytes, "given back")


async def test_the_webhook_takes_no_endless_review() -> None:
    async with ports(http.WEBHOOK) as port:
        client = await port.open()
        await client.send(b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n")
        piece = b"x" * (1 << 20)
        while port.inside:
            client.writer.write(piece)
            await asyncio.sleep(0.001)
        assert port.body_read <= bounds.REVIEW_BODY.most


async def test_requests_before_the_answer_are_not_gathered(port: Port) -> None:
    port.answers.clear()
    client = await port.open()
    told = await client.asked(b"GET / HTTP/1.1\r\n\r\n" * 5000)
    assert told.startswith(b"HTTP/1.1 400")
    assert port.asked <= 1


async def test_one_peer_gets_so_many_connections_and_others_still_get_in(port: Port) -> None:
    greedy = [await port.open() for _ in range(3)]
    await until(lambda: port.inside == 3, "three inside")
    assert await (await port.open()).answer() == b""
    other = await port.open(source="127.0.0.2")
    assert (await other.asked()).startswith(OK)
    assert await (await port.open(source="127.0.0.3")).answer() == b"", "four in all"
    greedy[0].writer.close()
    await until(lambda: port.inside == 3, "one left")
    assert (await (await port.open()).asked()).startswith(OK)


async def test_a_crowd_is_let_in_one_in_each_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in turns: between two connections everybody else has a turn."""
    turns, met = 0, list[int]()
    meet = http.Door._meet

    def counted(self: http.Door, *given: Any) -> None:
        met.append(turns)
        meet(self, *given)

    monkeypatch.setattr(http.Door, "_meet", counted)
    async with ports(msgspec.structs.replace(LIMITS, connections=100, per_peer=100)) as port:

        async def turning() -> None:
            nonlocal turns
            while len(met) < 50:
                turns += 1
                await asyncio.sleep(0)

        opening = [asyncio.create_task(port.open()) for _ in range(50)]
        await asyncio.wait_for(turning(), 30)
        await asyncio.gather(*opening)
        assert len(set(met)) == 50


@pytest.mark.parametrize(
    ("which", "sent"),
    [
        ("idle_s", b""),
        ("idle_s", b"\r\n"),
        ("request_s", b"GET / HT"),
        ("request_s", b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc"),
        ("answer_s", b"GET / HTTP/1.1\r\n\r\n"),
    ],
)
async def test_who_takes_too_long_is_cut_off(which: str, sent: bytes) -> None:
    patient = {"idle_s": 1000.0, "request_s": 1000.0, "answer_s": 1000.0}
    async with ports(msgspec.structs.replace(LIMITS, **{**patient, which: 0.01})) as port:
        port.answers.clear()
        client = await port.open()
        assert await client.asked(sent) == b""
        await until(lambda: port.inside == 0, "gone")


async def test_who_sends_a_byte_now_and_then_is_cut_off_too() -> None:
    async with ports(msgspec.structs.replace(LIMITS, request_s=0.5)) as port:
        client = await port.open()
        await client.send(b"GET / HTTP/1.1\r\n")
        while port.inside:
            client.writer.write(b"a: b\r\n")
            await asyncio.sleep(0.05)
        assert port.asked == 0


class Cut:
    """A transport that was cut off, as uvloop has them: it takes nothing any more."""

    def is_closing(self) -> bool:
        return True

    def write(self, _: bytes) -> None:
        raise RuntimeError("the handler is closed")


async def test_an_answer_to_somebody_who_was_cut_off_is_dropped() -> None:
    failed = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    gathering = protocol._BufferedTransport(cast(asyncio.Transport, Cut()))
    gathering.write(b"late")
    await asyncio.sleep(0.01)
    assert not failed
    assert not gathering._parts


async def test_a_port_that_is_broken_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(http.Door, "_meet", broken)
    port = Port(LIMITS)
    await port.open()
    with pytest.raises(RuntimeError, match="a bug"):
        await asyncio.wait_for(port.running, 30)
