"""`gangshare explain pod|group|node|queue|gpu`: the options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from extender.cli import completion
from extender.cli.options import DEFAULT_SERVER, Namespace, Output, Server, Watch, plain_typer
from extender.cli.show import Page, show, watch

if TYPE_CHECKING:
    from extender.wire import answers

Workload = TypeVar("Workload", "answers.Pod", "answers.Group")
ENDED = ("running", "completed")
"""The verdicts at which a watch ends."""
Key = Annotated[str, typer.Argument(help="NAME or NAMESPACE/NAME.")]
explain = plain_typer(
    no_args_is_help=True, help="Explain the state of a pod, gang, node, queue or GPU: a verdict, and what to do."
)


@explain.command("pod")
def pod(
    pod: Key,
    namespace: Namespace = "default",
    scores: Annotated[
        bool, typer.Option("--scores", help="Show its score on its node and on the best others, term by term.")
    ] = False,
    watching: Watch = False,
    output: Output = "table",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show the GPUs of a pod, or why it is pending and what the nodes lack for it."""
    from extender.cli import explain as view
    from extender.cli import inspection, ranking
    from extender.wire import answers

    def render(found: answers.Pod) -> Iterable[str]:
        path = f"inspect/{found.node}"
        node = inspection.decode(inspection.fetch(server, path), answers.Node) if found.allocation else None
        return *view.lines(found, node), *ranking.lines(found)

    key = view.key("pod", pod, namespace)
    missing = f"pod {key} not found: expected a pod that has not ended"
    query = (("scores", "true"),) if scores else ()
    _follow(Page(server, f"explain/{key}", answers.Pod, render, missing, query), output, watching=watching)


@explain.command("group")
def group(
    group: Key,
    namespace: Namespace = "default",
    watching: Watch = False,
    output: Output = "table",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show the state of a gang and its members, or why it is pending."""
    from extender.cli import explain as view
    from extender.wire import answers

    key = view.key("group", group, namespace)
    missing = f"group {key} not found: expected a gang with pods or a PodGroup"
    page = Page(server, f"explain/groups/{key}", answers.Group, view.group_lines, missing)
    _follow(page, output, watching=watching)


def _follow(page: Page[Workload], output: Output, *, watching: bool) -> None:
    """Print the page of a workload; when watching, each of its verdicts until it runs."""
    if watching:
        watch(page, output, lambda found: found.verdict, lambda found: found.verdict.state in ENDED)
    else:
        show(page, output)


@explain.command("node")
def node(
    node: Annotated[str, typer.Argument(help="NAME of the node.")],
    output: Output = "table",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show whether a node takes new pods, its GPUs, and the pods on each."""
    from extender.cli import explain_places as view
    from extender.wire import answers

    missing = f"node {node!r} not found: expected a node that the extender knows"
    show(Page(server, f"inspect/{node}", answers.NodePage, view.node, missing), output)


@explain.command("queue")
def queue(
    queue: Annotated[str, typer.Argument(help="NAME of the queue.", autocompletion=completion.queues)],
    output: Output = "table",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show whether pods of a queue start, what it uses, and who is first in it."""
    from extender.cli import explain_places as view
    from extender.wire import listings

    missing = f"queue {queue!r} not found: `gangshare queues` shows all queues"
    show(Page(server, f"queues/{queue}", listings.QueuePage, view.queue, missing), output)


@explain.command("gpu")
def gpu(
    uuid: Annotated[str, typer.Argument(help="UUID of the GPU.")],
    output: Output = "table",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show whether a GPU takes new pods, and the pods on it."""
    from extender.cli import explain_places as view
    from extender.wire import answers

    missing = f"GPU {uuid!r} not found: `gangshare explain node NAME` shows the UUIDs of a node's GPUs"
    show(Page(server, f"gpus/{uuid}", answers.GpuPage, view.gpu, missing), output)
