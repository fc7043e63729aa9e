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
from extender.ui.app import App
from extender.ui.board import Board
from extender.ui.guard import Local
from extender.ui.sources import Aggregated, Source, Status
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials

HOST = "127.0.0.1"
MOST_CONNECTIONS = 64
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


async def _serve(place: Place, source: Source, *, browser: bool) -> None:
    with _listener(place.port) as listener:
        door = Local(secrets.token_urlsafe(32), listener.getsockname()[1])
        named = place.context or place.server or "the current context"
        app = App(door, source, Board(source), named, metadata.version("gangshare"))
        url = f"http://{HOST}:{door.port}/?token={door.token}"
        typer.echo(f"The page is at {url} until Ctrl-C. Whoever has this URL sees what you may see.")
        if browser and _has_screen():
            webbrowser.open(url)
        await uvicorn.Server(_config(app)).serve(sockets=[listener])


def _has_screen() -> bool:
    """Whether a browser can be opened: not on a machine without a display, nor by SSH."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise CommandError(f"--port is {port}: {error.strerror or error}, expected a free port") from error


def _config(app: App) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
