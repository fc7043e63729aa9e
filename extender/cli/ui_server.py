"""Runs the server of the page until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import webbrowser
from importlib import metadata
from typing import NamedTuple

import typer
import uvicorn

from extender.cli import as_user
from extender.cli.errors import CommandError
from extender.settings import address
from extender.ui.app import App
from extender.ui.board import MOST_STREAMS, Board
from extender.ui.guard import Local, Proxied
from extender.ui.sources import Aggregated, Source, Status
from extender.ui.viewers import Viewer, Viewers
from protos.contract.shared_settings import SettingsError
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials

HOST = "127.0.0.1"
QUESTIONS = 64
"""Connections beside the open tabs of all viewers."""
IDLE_S, GRACE_S = 20, 1


class Place(NamedTuple):
    """Where the page is served, and what it reads. `server`: the status port, "" for the aggregated API."""

    port: int = 0
    kubeconfig: str = ""
    context: str = ""
    server: str = ""


async def serve(place: Place, *, browser: bool) -> None:
    """Serve the page; raises CommandError."""
    if not place.server:
        async with as_user.client(place.kubeconfig, place.context, "the page") as client:
            await _serve(place, Aggregated(client), browser=browser)
        return
    if not place.server.startswith("http://"):
        raise CommandError(f"server is {place.server!r}: expected a URL like http://127.0.0.1:12346")
    async with ApiClient(Credentials(place.server.rstrip("/"))) as client:
        await _serve(place, Status(client), browser=browser)


async def serve_behind_proxy(text: str, kubeconfig: str, context: str) -> None:
    """Serve the page at an address to those whom a login proxy lets in, with the token of each; raises CommandError."""
    try:
        listen = address(text)
    except SettingsError as error:
        raise CommandError(f"--behind-proxy: {error}") from error
    async with as_user.client(kubeconfig, context, "the page") as client:
        client.with_token("")  # raises before anybody asks
        viewers = Viewers(lambda token: Aggregated(client.with_token(token)))
        app = App(Proxied(), viewers, context or "this cluster", metadata.version("gangshare"))
        with listening(listen.port, listen.host, "--behind-proxy") as listener:
            typer.echo(f"The page is served at {listen} until Ctrl-C, to requests with a bearer token.")
            await uvicorn.Server(_config(app, viewers.most)).serve(sockets=[listener])


async def _serve(place: Place, source: Source, *, browser: bool) -> None:
    with listening(place.port) as listener:
        door = Local(secrets.token_urlsafe(32), listener.getsockname()[1])
        named = place.context or place.server or "the current context"
        viewer = Viewer(source, Board(source))
        app = App(door, lambda _: viewer, named, metadata.version("gangshare"))
        url, once = (f"http://{HOST}:{door.port}/?token={token}" for token in (door.token, door.one_time()))
        typer.echo(f"The page is at {url} until Ctrl-C. Whoever has this URL sees what you may see.")
        if browser and _has_screen():
            webbrowser.open(once)  # others on this machine may read the command line of a browser
        await uvicorn.Server(_config(app, 1)).serve(sockets=[listener])


def _has_screen() -> bool:
    """Whether a browser can be opened: not on a machine without a display, nor by SSH."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def listening(port: int, host: str = HOST, option: str = "--port") -> socket.socket:
    """A socket at this port, 0: a free one; raises CommandError, which names the option."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise CommandError(f"{option} is {port}: {error.strerror or error}, expected a free port") from error


def _config(app: App, viewers: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=QUESTIONS + MOST_STREAMS * viewers,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
