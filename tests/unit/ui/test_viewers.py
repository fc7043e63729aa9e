"""Behind a login proxy, each token has a sight of its own; their number is bounded."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from extender.ui import guard
from extender.ui.app import App
from extender.ui.sources import Source, Trouble
from extender.ui.viewers import IDLE_S, Viewers
from extender.wire import page
from protos.kube import errors
from tests.unit.ui.test_app import Answer, Cluster, ask


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def seeing(token: str) -> Source:
    """A cluster in which this viewer sees a node of their name."""
    cluster = Cluster()
    cluster.shown = [page.Node(name=token, state="ok")]
    return cast(Source, cluster)


def bearer(token: str) -> tuple[bytes, bytes]:
    return b"authorization", f"Bearer {token}".encode()


def proxied(most: int = 64) -> App:
    return App(guard.Proxied(), Viewers(seeing, most), "here", "0.1.0")


async def seen(application: App, token: str) -> list[str]:
    answer = await ask(application, "/api/snapshot", bearer(token))
    assert answer.status == 200, answer.body
    return [node.name for node in msgspec.json.decode(answer.body, type=page.Snapshot).nodes]


async def test_everybody_sees_what_their_own_token_shows() -> None:
    application = proxied()
    for token in ("ada", "bob", "ada"):
        assert await seen(application, token) == [token]


@pytest.mark.parametrize(
    "headers",
    [[], [(b"authorization", b"Basic YTpi")], [(b"authorization", b"Bearer ")], [bearer("a b")], [bearer("x" * 20000)]],
)
@pytest.mark.parametrize("path", ["/", "/page.js", "/api/snapshot", "/api/whatif"])
async def test_who_has_no_token_learns_nothing(path: str, headers: list[tuple[bytes, bytes]]) -> None:
    answer = await ask(proxied(), path, *headers)
    assert answer.status == 401
    assert b"login proxy" in answer.body


async def test_idle_viewers_make_room_and_watched_ones_do_not() -> None:
    clock = Clock()
    viewers = Viewers(seeing, most=2, clock=clock)
    ada, _ = viewers("ada"), viewers("bob")
    watching = ada.board.stream("")
    await anext(watching)
    with pytest.raises(Trouble, match="too many people"):
        viewers("eve")
    clock.now = IDLE_S + 1
    viewers("eve")
    assert viewers("ada") is ada
    await watching.aclose()


async def test_who_looks_no_more_is_forgotten_though_there_is_room() -> None:
    """A login that is renewed brings a new token every few minutes, and each sight is a whole cluster."""
    clock = Clock()
    viewers = Viewers(seeing, most=64, clock=clock)
    for number in range(70):
        viewers(f"token-{number}")
        clock.now += 300
    assert len(viewers._known) == 1


async def test_a_stream_ends_when_the_token_is_no_longer_good() -> None:
    cluster = Cluster()
    application = App(guard.Proxied(), Viewers(lambda _: cast(Source, cluster)), "here", "0.1.0")
    cursor = msgspec.json.decode((await ask(application, "/api/snapshot", bearer("old"))).body)["cursor"]
    cluster.error = errors.Unauthorized("GET gpunodes")
    answer: Any = Answer()
    scope = {"path": "/api/stream", "method": "GET", "query_string": f"cursor={cursor}".encode()}

    async def receive() -> Any:
        await asyncio.sleep(60)

    async with asyncio.timeout(30):
        await application({**scope, "headers": [bearer("old")]}, receive, answer.send)
    assert b"log in again" in answer.body
