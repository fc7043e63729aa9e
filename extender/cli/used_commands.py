"""`gangshare idle` and `gangshare top --used`: the options, and where the answers come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from extender.cli import completion
from extender.cli.options import DEFAULT_SERVER, Context, Kubeconfig, Output, Server
from extender.cli.show import Made, show

if TYPE_CHECKING:
    from extender.cli.measured import Measured
    from extender.cli.top_rows import By, Filters, Sort


def idle(
    least: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="Show containers that have been idle at least so long.")
    ] = "30m",
    node: Annotated[str, typer.Option(help="Show only nodes of this name.", metavar="GLOB")] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Show only pods of this namespace.", metavar="GLOB")
    ] = "",
    queue: Annotated[
        str, typer.Option(help="Show only pods of this queue.", metavar="GLOB", autocompletion=completion.queues)
    ] = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: Output = "table",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show containers that hold GPUs and do nothing on them. Needs the component usage."""
    from extender.cli import measured, used
    from extender.cli.top_rows import Filters

    seconds = _seconds(least)
    filters = Filters(node=node, namespace=namespace, queue=queue)

    def make() -> Measured:
        return used.idle(used.selected(_measured((kubeconfig, context), server), filters), seconds)

    show(Made(make, measured.Measured, lambda found: used.render_idle(found, seconds)), output)


def top(filters: Filters, view: tuple[By, Sort], cluster: tuple[str, str], server: str) -> Made[Measured]:
    """The page of `gangshare top --used`; `cluster` is a kubeconfig and its context."""
    from extender.cli import measured, used

    def make() -> Measured:
        return used.selected(_measured(cluster, server), filters)

    return Made(make, measured.Measured, lambda found: used.render(found, used.View(*view)))


def _measured(cluster: tuple[str, str], server: str) -> Measured:
    """What all nodes saw, with what the extender's books know of the pods."""
    from extender.cli import inspection, measured, used
    from extender.wire import answers

    found = measured.read(*cluster)
    return used.with_books(found, inspection.decode(inspection.fetch(server, "inspect"), answers.Inspection))


def _seconds(text: str) -> float:
    from extender.cli.errors import CommandError
    from gangfilter import values

    try:
        return values.duration(text) or 0.0
    except values.BadValue as error:
        raise CommandError(f"--for is {text!r}: expected {error}") from error
