"""HTTP/1.1 against servers that write what they like, byte by byte."""

import asyncio
import base64
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from protos.kube import connection
from protos.kube.connection import Lost
from protos.kube.http1 import Http, NotConnected
from tests.cluster import pki

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
WITHIN_S = 20.0


class Server:
    """Plays `answers` in turn, one for each question; None closes the connection instead."""

    def __init__(self, *answers: bytes | None, then_close: bool = False) -> None:
        self.answers, self.then_close = list(answers), then_close
        self.heads: list[str] = []
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                answer = self.answers.pop(0)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                if self.then_close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def served(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"


async def test_questions_in_turn_share_a_connection() -> None:
    server = Server(OK, OK)
    async with served(server) as url:
        http = Http(url)
        for _ in range(2):
            assert (await http.ask("GET", "/x", {"Accept": "a"})).body == b"ok"
        http.close()
    assert server.connections == 1
    host = url.removeprefix("http://")
    assert server.heads[0] == f"GET /x HTTP/1.1\r\nHost: {host}\r\nAccept: a\r\n\r\n"


async def test_the_urls_own_path_goes_first() -> None:
    server = Server(OK)
    async with served(server) as url:
        await Http(f"{url}/clusters/c1/").ask("POST", "/api", {}, b"{}")
    assert server.heads[0].startswith("POST /clusters/c1/api HTTP/1.1\r\n")
    assert server.heads[0].endswith("Content-Length: 2\r\n\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\n\r\nok",
    ],
    ids=["chunked", "something on the way", "to the end of the connection", "old"],
)
async def test_answers_come_in_several_forms(answer: bytes) -> None:
    async with served(Server(answer, then_close=b"Content-Length" not in answer)) as url:
        told = await Http(url).ask("GET", "/", {})
    assert (told.status, told.body) == (200, b"ok")


async def test_an_answer_in_single_bytes_is_put_together() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in OK:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    async with served(serve) as url:
        assert (await Http(url).ask("GET", "/", {})).body == b"ok"


async def test_a_connection_that_the_server_does_not_keep_is_not_used_again() -> None:
    server = Server(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", OK, then_close=True)
    async with served(server) as url:
        http = Http(url)
        await http.ask("GET", "/", {})
        await http.ask("GET", "/", {})
    assert server.connections == 2


async def test_a_connection_that_was_idle_for_long_is_not_used_again() -> None:
    server = Server(OK, OK)
    async with served(server) as url:
        http = Http(url, idle_s=-1.0)
        await http.ask("GET", "/", {})
        await http.ask("GET", "/", {})
        http.close()
    assert server.connections == 2


async def test_connections_are_there_before_they_are_needed() -> None:
    server = Server(OK, OK, OK)
    async with served(server) as url:
        http = Http(url)
        for _ in range(5):
            http.prepare(2)
        await asyncio.gather(*http._opening)
        await asyncio.gather(http.ask("GET", "/", {}), http.ask("GET", "/", {}))
        http.close()
    assert server.connections == 2


async def test_connections_too_old_for_use_do_not_count_as_prepared() -> None:
    server = Server(OK, OK)
    async with served(server) as url:
        http = Http(url, idle_s=-1.0)
        await http.ask("GET", "/", {})
        http.prepare(1)
        await asyncio.gather(*http._opening)
        http.close()
    assert server.connections == 2


async def test_a_connection_that_cannot_be_prepared_fails_no_request() -> None:
    http = Http("http://127.0.0.1:1")
    http.prepare(1)
    await asyncio.gather(*http._opening)
    with pytest.raises(NotConnected):
        await http.ask("GET", "/", {})


async def test_a_question_held_back_at_the_last_moment_leaves_its_connection_to_the_next() -> None:
    def never() -> None:
        raise PermissionError

    server = Server(OK)
    async with served(server) as url:
        http = Http(url)
        with pytest.raises(PermissionError):
            await http.ask("POST", "/held", {}, b"{}", about_to=never)
        await http.ask("GET", "/", {})
        http.close()
    assert (server.connections, len(server.heads)) == (1, 1)


async def test_an_answer_that_breaks_off_is_lost() -> None:
    async with served(Server(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", then_close=True)) as url:
        with pytest.raises(Lost):
            await Http(url).ask("GET", "/", {})


async def test_an_answer_without_a_length_that_is_cut_off_is_not_whole() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await asyncio.sleep(0.05)
        linger_no_longer = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_no_longer)
        writer.transport.abort()

    async with served(reset) as url:
        with pytest.raises(Lost):
            await Http(url).ask("GET", "/", {})


async def test_an_answer_without_a_length_is_not_whole_where_we_closed() -> None:
    begun = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        begun.set()
        await reader.read()
        writer.close()

    async with served(serve) as url:
        http = Http(url)
        asking = asyncio.create_task(http.ask("GET", "/", {}))
        await begun.wait()
        while not any(each.status for each in http._open):  # noqa: ASYNC110 - what is awaited has no event
            await asyncio.sleep(0.001)
        http.close()
        with pytest.raises(Lost):
            await asking


async def test_another_protocol_is_lost_and_says_so() -> None:
    answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    async with served(Server(answer)) as url:
        with pytest.raises(Lost, match="expected an HTTP answer"):
            await Http(url).ask("GET", "/", {})


async def test_what_is_not_http_is_lost_and_says_so() -> None:
    async with served(Server(b"SSH-2.0-OpenSSH_9\r\n\r\n")) as url:
        with pytest.raises(Lost, match="expected an HTTP answer"):
            await Http(url).ask("GET", "/", {})


async def test_unrequested_bytes_end_the_connection() -> None:
    server = Server(OK + OK, OK)
    async with served(server) as url:
        http = Http(url)
        for _ in range(2):
            assert (await http.ask("GET", "/", {})).body == b"ok"
    assert server.connections == 2


async def test_only_a_loss_over_a_used_connection_may_be_its_age() -> None:
    async with served(Server(None)) as url:
        with pytest.raises(Lost) as first:
            await Http(url).ask("GET", "/", {})
    async with served(Server(OK, None)) as url:
        http = Http(url)
        await http.ask("GET", "/", {})
        with pytest.raises(Lost) as second:
            await http.ask("GET", "/", {})
    assert (first.value.reused, second.value.reused) == (False, True)


async def test_a_question_that_is_given_up_closes_its_connection() -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.read()
        left.set()
        writer.close()

    async with served(serve) as url:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await Http(url).ask("GET", "/", {})
        await asyncio.wait_for(left.wait(), 5)


async def test_a_stream_gives_what_comes_as_it_comes_and_ends() -> None:
    more = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await more.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        writer.close()

    async with served(serve) as url, Http(url).stream("/", {}) as stream:
        assert (stream.status, await stream.chunk(WITHIN_S)) == (200, b"one")
        more.set()
        assert await stream.rest(WITHIN_S) == b"two"
        assert await stream.chunk(WITHIN_S) == b""


async def test_each_answer_on_a_connection_has_its_own_time() -> None:
    """One timer serves the requests of a connection in turn."""
    slow = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for pause_s in (0.0, 0.3, 60.0):
            await reader.readuntil(b"\r\n\r\n")
            with suppress(TimeoutError):
                await asyncio.wait_for(slow.wait(), pause_s)
            writer.write(OK)
        writer.close()

    async with served(serve) as url:
        http = Http(url, answer_s=0.5)
        assert (await http.ask("GET", "/", {})).body == b"ok"
        await asyncio.sleep(0.3)
        assert (await http.ask("GET", "/", {})).body == b"ok"
        with pytest.raises(TimeoutError):
            await http.ask("GET", "/", {})
        slow.set()


async def test_a_stream_whose_reader_is_slow_holds_its_server_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUFFER", 1 << 16)
    size = 64 << 20
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(64):
            writer.write(bytes(1 << 20))
            await writer.drain()
            sent += 1
        writer.close()

    async with served(serve) as url, Http(url).stream("/", {}) as stream:
        for _ in range(200):
            await asyncio.sleep(0.001)
        assert sent < 64
        assert len(await stream.rest(WITHIN_S)) == size
    assert sent == 64


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/ä"])
async def test_a_target_that_is_not_quoted_is_refused(target: str) -> None:
    async with served(Server(OK)) as url:
        with pytest.raises(ValueError, match="expected a quoted target"):
            await Http(url).ask("GET", target, {})


async def test_a_header_that_would_be_two_is_refused() -> None:
    async with served(Server(OK)) as url:
        with pytest.raises(ValueError, match="headers of one line each"):
            await Http(url).ask("GET", "/", {"Authorization": "Bearer x\r\nImpersonate-User: admin"})


@pytest.mark.parametrize(
    "url", ["ftp://host", "host:80", "https://", "https://host:x", "https://host:99999", "http://h:0"]
)
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected a URL"):
        Http(url)


async def test_a_refused_connection_is_an_error_with_the_address() -> None:
    with pytest.raises(NotConnected, match=r"cannot connect to 127\.0\.0\.1:1: "):
        await Http("http://127.0.0.1:1").ask("GET", "/", {})


async def test_a_host_that_can_be_no_name_is_not_connected() -> None:
    with pytest.raises(NotConnected, match=r"cannot connect to a\.\.b:80: "):
        await Http("http://a..b").ask("GET", "/", {})


async def test_a_connection_that_does_not_come_about_leaves_nothing_and_tells_why() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with served(serve) as url:
        http = Http(url.replace("http:", "https:"))
        with pytest.raises(NotConnected, match=r"(?i)reset|eof"):
            await http.ask("GET", "/", {})
    assert not http._open


async def test_no_question_is_sent_after_the_close() -> None:
    server = Server(OK)
    async with served(server) as url:
        http = Http(url)
        asking = asyncio.create_task(http.ask("POST", "/", {}, b"{}"))
        await asyncio.sleep(0)  # it is connecting now
        http.close()
        with pytest.raises(Lost):
            await asking
    assert not server.heads


class Proxy:
    """An HTTP proxy that knows CONNECT only."""

    def __init__(self, status: bytes = b"200 OK") -> None:
        self.status = status
        self.heads: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        writer.write(b"HTTP/1.1 %s\r\n\r\n" % self.status)
        if self.status.startswith(b"200"):
            host, _, port = head.split()[1].rpartition(":")
            there, back = await asyncio.open_connection(host, int(port))
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(65536):
            writer.write(part)
        writer.close()


@pytest.fixture
def trusted(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS of a server on 127.0.0.1, and of its clients."""
    authority = pki.Authority(tmp_path / "pki")
    pair = authority.issue("server", user="server", sans=["IP:127.0.0.1"])
    there = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    there.load_cert_chain(pair.certificate, pair.key)
    return there, ssl.create_default_context(cafile=str(authority.ca.certificate))


async def test_tls_is_checked_and_served_twice(trusted: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server = Server(OK, OK)
    async with served(server, trusted[0]) as url:
        http = Http(url, tls=lambda: trusted[1])
        for _ in range(2):
            assert (await http.ask("GET", "/", {})).body == b"ok"
        http.close()
        with pytest.raises(NotConnected, match=r"(?i)certificate"):
            await Http(url, tls=lambda: trusted[1], server_name="other.example").ask("GET", "/", {})
    assert len(server.heads) == 2


async def test_https_goes_through_a_proxy_in_a_tunnel(trusted: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, proxy = Server(OK, OK), Proxy()
    async with served(server, trusted[0]) as url, served(proxy) as by:
        http = Http(url, tls=lambda: trusted[1], proxy=by.replace("://", "://me:s%40cret@"))
        for _ in range(2):
            assert (await http.ask("GET", "/x", {})).body == b"ok"
        http.close()
    there = url.removeprefix("https://")
    basic = base64.b64encode(b"me:s@cret").decode()
    assert proxy.heads == [f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\nProxy-Authorization: Basic {basic}\r\n\r\n"]
    assert server.heads[0] == f"GET /x HTTP/1.1\r\nHost: {there}\r\n\r\n"


async def test_a_proxy_that_refuses_is_named(trusted: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with served(Proxy(b"407 Proxy Authentication Required")) as by:
        with pytest.raises(NotConnected, match=r"the proxy 127\.0\.0\.1 answers 407 to CONNECT"):
            await Http("https://api.example", tls=lambda: trusted[1], proxy=by).ask("GET", "/", {})


async def test_plain_http_is_asked_of_the_proxy_itself() -> None:
    proxy = Server(OK)
    async with served(proxy) as by:
        await Http("http://api.example:8080", proxy=by).ask("GET", "/x", {})
    assert proxy.heads[0].startswith("GET http://api.example:8080/x HTTP/1.1\r\nHost: api.example:8080\r\n")


async def test_a_proxy_is_told_an_ipv6_address_in_brackets() -> None:
    proxy = Proxy(b"403 Forbidden")
    async with served(proxy) as by:
        with pytest.raises(NotConnected, match=r"answers 403 to CONNECT \[::1\]:6443"):
            await Http("https://[::1]:6443", proxy=by).ask("GET", "/", {})
    assert proxy.heads == ["CONNECT [::1]:6443 HTTP/1.1\r\nHost: [::1]:6443\r\n\r\n"]


async def test_a_tunnel_lasts_whatever_the_proxy_said_of_its_own_connection(
    trusted: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server, proxy = Server(OK), Proxy(b"200 OK\r\nConnection: close\r\nContent-Length: 0")
    async with served(server, trusted[0]) as url, served(proxy) as by:
        http = Http(url, tls=lambda: trusted[1], proxy=by)
        http.prepare(1)
        await asyncio.gather(*http._opening)
        assert (await http.ask("GET", "/", {})).body == b"ok"
        http.close()
    assert len(proxy.heads) == 1
