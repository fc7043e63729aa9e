"""`gangshare ui` serves the page over HTTP, to who has the URL."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest

from extender.cli import ui_server
from extender.cli.errors import CommandError
from extender.cli.ui_server import Place
from tests.unit.cli.conftest import StatusPort


async def served(place: Place, capsys: pytest.CaptureFixture[str], read: Callable[[str], Any]) -> Any:
    """What `read` makes of the URL that the command prints."""
    serving = asyncio.create_task(ui_server.serve(place, browser=False))
    text = ""
    while not (found := re.search(r"http://\S+", text)):
        assert not serving.done(), serving.exception()
        await asyncio.sleep(0.05)
        text += capsys.readouterr().out
    try:
        return await asyncio.to_thread(read, found[0])
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def snapshot(url: str) -> Any:
    browser = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar())
    )
    assert b"page.js" in browser.open(url, timeout=10).read()
    return json.load(browser.open(url.partition("?")[0] + "api/snapshot", timeout=10))


async def test_it_shows_the_status_port(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    status_port.answers["/queues"] = b'{"queues":[]}'
    found = await served(Place(server=status_port.url), capsys, snapshot)
    assert [node["name"] for node in found["nodes"]] == [
        node["name"] for node in json.loads(status_port.answers["/inspect"])["nodes"]
    ]


async def test_it_asks_the_aggregated_api_with_the_kubeconfig(
    status_port: StatusPort, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    base = "/apis/visibility.gangshare.io/v1alpha1"
    rest = ("gpuqueues", "gangs", "gpupods?fieldSelector=status.state%3Dwaiting")
    status_port.answers = {f"{base}/{plural}": b'{"items":[]}' for plural in rest}
    status_port.answers[f"{base}/gpunodes?changedSince="] = b'{"items":[{"status":{"name":"from-the-api"}}]}'
    kubeconfig = status_port.write_kubeconfig(tmp_path / "kubeconfig")
    found = await served(Place(kubeconfig=str(kubeconfig)), capsys, snapshot)
    assert [node["name"] for node in found["nodes"]] == ["from-the-api"]


async def test_behind_a_login_proxy_everybody_reads_with_their_own_token(
    status_port: StatusPort, tmp_path: Path
) -> None:
    base = "/apis/visibility.gangshare.io/v1alpha1"
    rest = ("gpuqueues", "gangs", "gpupods?fieldSelector=status.state%3Dwaiting", "gpunodes?changedSince=")
    status_port.answers = {f"{base}/{plural}": b'{"items":[]}' for plural in rest}
    kubeconfig = str(status_port.write_kubeconfig(tmp_path / "kubeconfig"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    serving = asyncio.create_task(ui_server.serve_behind_proxy(f"127.0.0.1:{port}", kubeconfig, ""))

    def get(**headers: str) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/snapshot", headers=headers)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    try:
        while True:
            assert not serving.done(), serving.exception()
            await asyncio.sleep(0.05)
            try:
                assert await asyncio.to_thread(get) == 401
                break
            except urllib.error.URLError:
                continue
        assert status_port.tokens == set()
        for user in ("ada", "bob"):
            assert await asyncio.to_thread(get, Authorization=f"Bearer {user}") == 200
        assert status_port.tokens == {"Bearer ada", "Bearer bob"}, "never the token of the kubeconfig"
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(CommandError, match="--behind-proxy: 'here' is no address: expected host:port"):
        await ui_server.serve_behind_proxy("here", "", "")


async def test_a_port_in_use_and_a_server_that_is_no_url_are_named(status_port: StatusPort) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"--port is {port}.*expected a free port"):
            await ui_server.serve(Place(port=port, server=status_port.url), browser=False)
    with pytest.raises(CommandError, match="server is 'x': expected a URL"):
        await ui_server.serve(Place(server="x"), browser=False)
