"""Names that a shell completes, asked of the extender. Without an answer it completes nothing."""

from __future__ import annotations

import typer

from extender.cli.options import DEFAULT_SERVER

TIMEOUT_S = 1.0


def queues(context: typer.Context, incomplete: str) -> list[str]:
    """The queues whose names begin so."""
    from extender.cli import inspection
    from extender.cli.errors import CommandError
    from extender.wire.listings import Queues

    try:
        body = inspection.fetch(context.params.get("server") or DEFAULT_SERVER, "queues", timeout_s=TIMEOUT_S)
        found = inspection.decode(body, Queues)
    except CommandError:
        return []
    return [queue.name for queue in found.queues if queue.name.startswith(incomplete)]
