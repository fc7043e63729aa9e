"""The server of the page: who is let in, what is answered, and the stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from extender.ui import guard
from extender.ui.app import App
from extender.ui.board import Board
from extender.ui.sources import Rest
from extender.ui.viewers import Viewer
from extender.wire import answers, page
from protos.kube import errors

DOOR = guard.Local("secret", 8000)
HOST = (b"host", b"127.0.0.1:8000")
COOKIE = (b"cookie", b"other=1; gangshare-8000=secret")
HOSTILE = "<script>alert(1)</script>"


class Cluster:
    """A source of which the test decides what it answers."""

    def __init__(self) -> None:
        self.shown: list[page.Node] = [page.Node(name="n1", state="ok")]
        self.error: errors.ApiError | None = None
        self.looks = 0

    async def nodes(self) -> Sequence[page.Node]:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return list(self.shown)

    async def node(self, name: str) -> answers.NodePage:
        return answers.NodePage(name=name, links=(answers.Link(gpus=(0, 1), kind="NV4"),))

    async def rest(self, namespaces: Sequence[str]) -> Rest:
        return Rest(limits=tuple(namespaces))

    async def what_if(self, namespace: str, question: bytes) -> bytes:
        where = [{"name": "what-if", "node": namespace, "gpus": [1, 256 + 2]}]
        workload = {"kind": "pod", "namespace": namespace, "name": "w", "verdict": {}, "pods": where}
        return msgspec.json.encode({"workloads": [workload]})

    async def explain(self, namespace: str, name: str) -> bytes:
        if name != "p":
            raise errors.NotFound("GET gpupods", message=f"{name} not found")
        return msgspec.json.encode({**POD, "namespace": namespace})


SHARE = {"uuid": "GPU-3", "index": 3, "mem": 10, "slices": 0, "whole": False}
POD = {
    "namespace": "a", "name": "p", "uid": "1", "node": "n1",
    "allocation": {"v": 1, "unitMiB": 1024, "slicesPerGpu": 100, "containers": {"main": [SHARE]}},
}  # fmt: skip


class Answer:
    """What the application sent."""

    def __init__(self) -> None:
        self.status, self.body = 0, b""
        self.headers: dict[bytes, bytes] = {}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        self.body += message.get("body", b"")


def app(cluster: Cluster) -> App:
    viewer = Viewer(cluster, Board(cluster, every_s=0.01))
    return App(DOOR, lambda _: viewer, "here", "0.1.0")


async def ask(
    application: App, path: str, *headers: tuple[bytes, bytes], method: str = "GET", query: bytes = b"", stay: float = 0
) -> Answer:
    """The answer; a browser that reads a stream leaves after `stay` seconds."""
    answer, scope = Answer(), {"path": path, "method": method, "query_string": query, "headers": list(headers)}

    async def receive() -> Any:
        await asyncio.sleep(stay)
        return {"type": "http.disconnect"}

    await application(scope, receive, answer.send)
    return answer


async def test_the_url_that_a_browser_is_started_with_is_good_once() -> None:
    """Others on the machine may read the command line of the browser."""
    door = guard.Local("secret", 8000)
    once = f"token={door.one_time()}".encode()
    assert door.cookie([HOST], "/", once) == b"gangshare-8000=secret; Path=/; HttpOnly; SameSite=Strict"
    assert door.cookie([HOST], "/", once) == b""
    assert door.cookie([HOST], "/", b"token=") == b""


async def test_the_url_with_the_token_sets_a_cookie_and_hides_the_token() -> None:
    answer = await ask(app(Cluster()), "/", HOST, query=b"token=secret")
    assert (answer.status, answer.headers[b"location"]) == (303, b"/")
    assert answer.headers[b"set-cookie"] == b"gangshare-8000=secret; Path=/; HttpOnly; SameSite=Strict"


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ([HOST], b"", 401),
        ([HOST], b"token=wrong", 401),
        ([HOST], b"token=" + b"x" * 5000, 401),
        ([HOST, (b"cookie", b"gangshare-8000=secre")], b"", 401),
        ([HOST, (b"cookie", b"gangshare-8000=\xe9")], b"", 401),
        ([(b"host", b"evil.example:8000"), COOKIE], b"", 403),
        ([(b"host", b"127.0.0.1:8001"), COOKIE], b"token=secret", 403),
        ([COOKIE], b"", 403),
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/snapshot", "/api/stream", "/api/explain/a/p", "/api/whatif"])
async def test_strangers_learn_nothing(
    path: str, headers: list[tuple[bytes, bytes]], query: bytes, status: int
) -> None:
    answer = await ask(app(Cluster()), path, *headers, query=query)
    assert answer.status == status
    assert b"n1" not in answer.body


async def test_nothing_is_written() -> None:
    assert (await ask(app(Cluster()), "/api/snapshot", HOST, COOKIE, method="POST")).status == 405


async def test_every_answer_forbids_scripts_of_others_and_is_not_kept() -> None:
    application = app(Cluster())
    for path, status in (("/", 200), ("/page.js", 200), ("/api/snapshot", 200), ("/api/none", 404)):
        answer = await ask(application, path, HOST, COOKIE)
        assert answer.status == status
        assert b"default-src 'self'" in answer.headers[b"content-security-policy"]
        assert answer.headers[b"cache-control"] == b"no-store"


@pytest.mark.parametrize(
    "path", ["/../app.py", "/..", "/app.py", "//etc/passwd", "/.hidden.js", "/page.js/", "/\x00.js"]
)
async def test_no_other_file_is_served(path: str) -> None:
    assert (await ask(app(Cluster()), path, HOST, COOKIE)).status == 404


async def test_a_hostile_name_stays_a_string_of_json() -> None:
    cluster = Cluster()
    cluster.shown = [page.Node(name=HOSTILE, state="ok")]
    answer = await ask(app(cluster), "/api/snapshot", HOST, COOKIE)
    assert answer.headers[b"content-type"] == b"application/json"
    assert msgspec.json.decode(answer.body, type=page.Snapshot).nodes[0].name == HOSTILE


async def test_a_pod_is_explained_and_an_unknown_one_is_an_error() -> None:
    application = app(Cluster())
    answer = (await ask(application, "/api/explain/a/p", HOST, COOKIE)).body
    assert msgspec.json.decode(answer) == {"pod": POD, "held": ["Container main: GPU 3, 10 GiB."]}
    missing = await ask(application, "/api/explain/a/q", HOST, COOKIE)
    assert (missing.status, missing.body) == (404, b'{"error":"q not found"}')


async def test_the_links_of_a_node_are_a_table() -> None:
    answer = (await ask(app(Cluster()), "/api/links/n1", HOST, COOKIE)).body
    assert msgspec.json.decode(answer) == {"gpus": ["0", "1"], "rows": [["", "NV4"], ["NV4", ""]]}


async def test_a_what_if_is_asked_and_nonsense_is_an_error() -> None:
    application = app(Cluster())
    answer = await ask(application, "/api/whatif", HOST, COOKIE, query=b"of=gpus&amount=2&namespace=a")
    assert msgspec.json.decode(answer.body)["places"] == ["what-if on a, GPU 1, 0:2"]
    wrong = await ask(application, "/api/whatif", HOST, COOKIE, query=b"of=gpus&amount=many")
    assert (wrong.status, wrong.body) == (400, b'{"error":"amount is \'many\': expected a number from 1 to 100000"}')


async def test_a_change_comes_by_the_stream_and_reading_ends_with_the_last_tab() -> None:
    cluster = Cluster()
    application = app(cluster)
    cursor = msgspec.json.decode((await ask(application, "/api/snapshot", HOST, COOKIE)).body)["cursor"]
    cluster.shown = [page.Node(name="n2", state="cordoned")]
    answer = await ask(application, "/api/stream", HOST, COOKIE, query=f"cursor={cursor}".encode(), stay=0.2)
    event, data = answer.body.decode().split("\n\n")[0].split("\n")
    change = msgspec.json.decode(data.removeprefix("data: "), type=page.Delta)
    assert event == "event: delta"
    assert change.nodes == {"n1": None, "n2": page.Node(name="n2", state="cordoned")}
    looks = cluster.looks
    await asyncio.sleep(0.1)
    assert cluster.looks == looks


async def test_tabs_of_one_viewer_share_the_looks() -> None:
    cluster = Cluster()
    application = app(cluster)
    cursor = msgspec.json.decode((await ask(application, "/api/snapshot", HOST, COOKIE)).body)["cursor"]
    query = f"cursor={cursor}".encode()
    before = cluster.looks
    await asyncio.gather(*(ask(application, "/api/stream", HOST, COOKIE, query=query, stay=0.05) for _ in range(10)))
    assert 0 < cluster.looks - before <= 6


async def test_an_old_cursor_is_a_gap() -> None:
    answer = await ask(app(Cluster()), "/api/stream", HOST, COOKIE, query=b"cursor=old.1", stay=5)
    assert answer.body == b"event: gap\ndata: {}\n\n"


async def test_a_cluster_that_fails_is_told_and_so_is_its_return() -> None:
    cluster = Cluster()
    application = app(cluster)
    cursor = msgspec.json.decode((await ask(application, "/api/snapshot", HOST, COOKIE)).body)["cursor"]
    cluster.error = errors.Unavailable("GET gpunodes", message="no route")
    stream = asyncio.create_task(
        ask(application, "/api/stream", HOST, COOKIE, query=f"cursor={cursor}".encode(), stay=0.4)
    )
    await asyncio.sleep(0.05)
    cluster.error = None
    events = (await stream).body.decode()
    assert 'event: trouble\ndata: {"error":"the cluster does not answer: no route"}' in events
    assert events.index("event: delta") > events.index("event: trouble")


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (errors.NotFound("GET /apis/x/gpunodes"), 502, b"manifests/components/visibility"),
        (errors.Forbidden("GET x", message="no right"), 403, b"no right"),
        (errors.Unauthorized("GET x"), 401, b"log in again"),
    ],
)
async def test_what_is_missing_is_named(error: errors.ApiError, status: int, sentence: bytes) -> None:
    cluster = Cluster()
    cluster.error = error
    answer = await ask(app(cluster), "/api/snapshot", HOST, COOKIE)
    assert answer.status == status
    assert sentence in answer.body
