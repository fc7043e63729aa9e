"""The page in a real browser: a server with a made-up cluster, and Chromium without a screen."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import uvicorn

from extender.cli.ui_server import HOST, listening
from extender.ui.app import App
from extender.ui.board import Board
from extender.ui.guard import Local
from extender.ui.viewers import Viewer
from tests.unit.ui.world import World

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTH, HEIGHT = 1440, 940


class Site:
    """The page's server on a thread. Each instance has a world of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._socket = listening(0)
        door = Local("token", self._socket.getsockname()[1])
        self.url = f"http://{HOST}:{door.port}/"
        self.board = Board(world, every_s=0.05)
        viewer = Viewer(world, self.board)
        app = App(door, lambda _: viewer, "a made-up cluster", "0.1.0")
        config = uvicorn.Config(app, interface="asgi3", ws="none", lifespan="off", log_level="error")
        config.timeout_graceful_shutdown = 1
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def __enter__(self) -> Site:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def visit(self, page: Page, chosen: str = "") -> Page:
        """The page once it shows nodes, with a choice in the hash."""
        page.goto(f"{self.url}?token=token")
        if chosen:
            page.goto(f"{self.url}#{chosen}")
            page.reload()
        page.wait_for_selector(".node, #nodes-none:visible")
        return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: make setup")
    if CHROMIUM is None:
        pytest.skip("Chromium is missing: apt-get install chromium")
    with api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(World()) as found:
        yield found


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """A tab in which an error of a script, or one that the policy forbids, fails the test."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    context.set_default_timeout(20_000)
    page, faults = context.new_page(), list[str]()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
    yield page
    context.close()
    assert faults == []
