"""`gangshare ui`: serves the page on this machine, with the user's own rights."""

from __future__ import annotations

from typing import Annotated

import typer

from extender.cli.options import Context, Kubeconfig


def ui(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1.  [default: a free one]")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the URL.")] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    server: Annotated[
        str,
        typer.Option(
            envvar="GANGSHARE_SERVER",
            help="URL of the extender's status port.  [default: the aggregated API]",
            metavar="URL",
        ),
    ] = "",
    behind_proxy: Annotated[
        str,
        typer.Option(
            help="Serve at this address to a login proxy that passes each user's bearer token.", metavar="ADDRESS"
        ),
    ] = "",
) -> None:
    """Show GPUs, queues and pending workloads in the browser, until Ctrl-C. Nothing is changed."""
    import asyncio

    from extender.cli.errors import with_process

    with with_process("ui"):
        from extender.cli import ui_server

    if behind_proxy:
        asyncio.run(ui_server.serve_behind_proxy(behind_proxy, kubeconfig, context))
        return
    place = ui_server.Place(port, kubeconfig, context, server)
    asyncio.run(ui_server.serve(place, browser=not no_browser))
