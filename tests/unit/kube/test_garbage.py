"""What fails is freed at once: no cycle of ours is left for the collector, which looks at young objects only."""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from protos.kube import errors
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials

POD = "/api/v1/namespaces/ns/pods/p"
TIMES = 20
REFUSED = b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}"
Play = Callable[[asyncio.StreamWriter], None]


def _refuses(writer: asyncio.StreamWriter) -> None:
    writer.write(REFUSED)


def _drops(writer: asyncio.StreamWriter) -> None:
    writer.close()


def _breaks_off(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")
    writer.close()


def _speaks_no_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example.com ESMTP\r\n\r\n")


def _is_silent(_: asyncio.StreamWriter) -> None:
    pass


@pytest.fixture
def left() -> Iterator[Callable[[], Counter[str]]]:
    """What the collector finds, by module and class: of this project and of httptools."""

    def found() -> Counter[str]:
        gc.collect()
        kinds = Counter(f"{type(each).__module__}.{type(each).__name__}" for each in gc.garbage)
        gc.garbage.clear()
        ours = ("protos.", "httptools.", "builtins.frame", "builtins.traceback")
        return Counter({kind: count for kind, count in kinds.items() if kind.startswith(ours)})

    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield found
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize("play", [_refuses, _drops, _breaks_off, _speaks_no_http, _is_silent])
async def test_a_failed_write_leaves_nothing_for_the_collector(play: Play, left: Callable[[], Counter[str]]) -> None:
    asked = 0
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        writers.append(writer)
        while head := await reader.readline():
            if head == b"\r\n":
                await reader.readexactly(2)
                asked += 1
                play(writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with ApiClient(Credentials(server=f"http://127.0.0.1:{port}"), answer_s=0.02) as api:
            for _ in range(TIMES):
                with pytest.raises(errors.ApiError):
                    await api.patch(POD, b"{}")
            await asyncio.sleep(0.05)
            found = left()
        for writer in writers:
            writer.close()
    assert asked == TIMES
    assert not found
