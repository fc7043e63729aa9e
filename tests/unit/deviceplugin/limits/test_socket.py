"""The socket between plugin and helper: who may ask, bounded messages, helpers that hang, end or are somebody else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from deviceplugin import helper_socket
from deviceplugin.helper_lines import line
from deviceplugin.limits.client import Limits
from deviceplugin.limits.helper import Helper
from deviceplugin.limits.protocol import Answer, Hello, Limit, LimitError, request
from deviceplugin.limits.serve import server
from protos.contract.bounds import HELPER_LINE
from protos.contract.shared_settings import SettingsError
from tests.sim.standin_limits import MIB, Driver, make_pod

POD = "0a1b2c3d-1111-2222-3333-444455556666"
ASKED = Limit(pod=POD, mib={"GPU-0": 4096})


class Node:
    """A helper that listens, and the plugin's side."""

    def __init__(self, folder: Path) -> None:
        (folder / "cgroup.controllers").write_text("")
        make_pod(folder, POD)
        self.driver, self.socket = Driver({"GPU-0": 16384 * MIB}), folder / "run" / "limits.sock"
        self.server, self.limits = server(self.socket, Helper(self.driver, folder)), Limits(self.socket)

    async def raw(self, text: bytes) -> bytes:
        """What is answered to this text, b"" if the connection ends."""
        reader, writer = await asyncio.open_unix_connection(self.socket)
        try:
            writer.write(text)
            await writer.drain()
            return await reader.read()
        except OSError:
            return b""
        finally:
            writer.transport.abort()


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path)
    async with made.server:
        yield made
        made.driver.hanging.set()


async def test_it_is_asked_and_does_it(node: Node) -> None:
    assert await node.limits.lacking() == ""
    await node.limits.ask(ASKED)
    assert list(node.driver.limits.values())[-1] == {"GPU-0": 4096 * MIB}
    node.driver.fault = "permission"
    with pytest.raises(LimitError, match="needs root and SYS_ADMIN"):
        await node.limits.ask(ASKED)


async def test_only_its_own_user_gets_to_the_socket(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    assert node.socket.stat().st_mode & 0o777 == 0o600
    assert node.socket.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(helper_socket, "peer_user", lambda _: os.geteuid() + 1)
    assert await node.raw(line(ASKED)) == b""
    assert node.driver.limits == {}


async def test_the_plugin_believes_no_helper_of_another_user(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_socket, "peer_user", lambda _: os.geteuid() + 1)
    with pytest.raises(LimitError, match="listens at"):
        await node.limits.ask(ASKED)


@pytest.mark.parametrize(
    "text",
    [
        b"\n",
        b"[]\n",
        b"[" * 5000 + b"\n",
        b'{"ask": "exec", "v": 1}\n',
        b'{"ask": "hello", "v": 2}\n',
        b'{"ask": "limit", "v": 1, "pod": "../../x", "mib": {"GPU-0": 1}}\n',
        b'{"ask": "limit", "v": 1, "pod": "%b", "mib": {}}\n' % POD.encode(),
        b'{"ask": "limit", "v": 1, "pod": "%b", "mib": {"GPU-0": 0}}\n' % POD.encode(),
        b'{"ask": "limit", "v": 1, "pod": "%b", "container": "x/..", "mib": {"GPU-0": 1}}\n' % POD.encode(),
        b'{"ask": "limit", "v": 1, "pod": "%b", "mib": {"GPU-0": 1}, "path": "/sys"}\n' % POD.encode(),
    ],
    ids=range(10),
)
async def test_what_is_not_understood_is_refused_with_a_sentence(node: Node, text: bytes) -> None:
    assert b'"why":"not understood' in await node.raw(text)
    assert node.driver.limits == {}


async def test_a_message_without_end_or_beyond_the_bound_ends_the_connection(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_socket, "REQUEST_S", 0.05)
    assert await node.raw(b"x" * (3 * HELPER_LINE.most)) == b""
    assert await node.raw(b"x") == b""
    with pytest.raises(LimitError, match="expected at most"):
        request(b"x" * (HELPER_LINE.most + 1))


async def test_a_driver_that_hangs_holds_up_nobody_for_ever(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_socket, "BUSY_S", 0.05)
    node.driver.fault = "hang"
    hanging = asyncio.create_task(node.limits.ask(ASKED))
    while not node.server._turn.locked():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    with pytest.raises(LimitError, match="has not answered an earlier request"):
        await node.limits.ask(ASKED)
    node.driver.hanging.set()
    await hanging


async def test_a_helper_that_hangs_is_given_up(node: Node) -> None:
    node.driver.fault = "hang"
    with pytest.raises(LimitError, match="it does not answer in"):
        await node.limits.ask(ASKED, 0.05)
    node.driver.hanging.set()


async def test_one_that_is_not_there_or_ends_in_between_is_said(node: Node, tmp_path: Path) -> None:
    absent = Limits(tmp_path / "none.sock")
    assert "it does not answer at" in await absent.lacking()

    async def ends(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with await asyncio.start_unix_server(ends, tmp_path / "ends.sock"):
        assert "it does not answer at" in await Limits(tmp_path / "ends.sock").lacking()


@pytest.mark.parametrize("text", [b"no\n", b'{"v": 7}\n', line(Answer(why="because"))])
async def test_a_strange_answer_is_no_consent(tmp_path: Path, text: bytes) -> None:
    async def strange(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(strange, tmp_path / "s.sock"):
        with pytest.raises(LimitError):
            await Limits(tmp_path / "s.sock").ask(Hello())


async def test_a_helper_that_starts_anew_takes_its_place(tmp_path: Path) -> None:
    first, second = Node(tmp_path), None
    await first.server.__aenter__()
    second = server(first.socket, Helper(first.driver, tmp_path))
    async with second:
        await first.limits.ask(ASKED)
    with pytest.raises(LimitError):
        await first.limits.ask(ASKED)


async def test_where_it_cannot_listen_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    made = server(tmp_path / "file" / "s.sock", Helper(Driver({}), tmp_path))
    with pytest.raises(SettingsError, match="expected a place for a socket"):
        await made.__aenter__()
