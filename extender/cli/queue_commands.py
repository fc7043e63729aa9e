"""`gangshare queue create|stop|resume` and `gangshare move pod|group`: the options."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from extender.cli import completion
from extender.cli.options import DEFAULT_SERVER, Context, Kubeconfig, Namespace, Output, Server, plain_typer
from extender.cli.show import write

queue = plain_typer(no_args_is_help=True, help="Create queues, and stop and resume them, with your own rights.")
move = plain_typer(no_args_is_help=True, help="Move pending pods and gangs to another queue, with your own rights.")
Name = Annotated[str, typer.Argument(help="NAME of the queue.", autocompletion=completion.queues)]
To = Annotated[
    str,
    typer.Option("--queue", help="NAME of the other queue.", metavar="NAME", autocompletion=completion.queues),
]
Workload = Annotated[str, typer.Argument(help="NAME or NAMESPACE/NAME.")]


@queue.command("create")
def create(
    name: Annotated[str, typer.Argument(help="NAME of the queue.")],
    capability: Annotated[
        list[str] | None,
        typer.Option(metavar="RESOURCE=AMOUNT", help="Upper limit: gpus=8,cpu=64. May be repeated, as may the others."),
    ] = None,
    deserved: Annotated[
        list[str] | None, typer.Option(metavar="RESOURCE=AMOUNT", help="What it gets as soon as it requests it.")
    ] = None,
    guarantee: Annotated[
        list[str] | None, typer.Option(metavar="RESOURCE=AMOUNT", help="What is reserved for it even while it is idle.")
    ] = None,
    parent: Annotated[
        str, typer.Option(help="The queue above it.", metavar="NAME", autocompletion=completion.queues)
    ] = "",
    weight: Annotated[int | None, typer.Option(help="Its share of what is left, from 1 to 10000.")] = None,
    priority: Annotated[int | None, typer.Option(help="Queues of higher priority go first.")] = None,
    namespaces: Annotated[
        list[str] | None,
        typer.Option(
            "--default-for", metavar="NAMESPACE", help="Pods there that name no queue use it. May be repeated."
        ),
    ] = None,
    description: Annotated[str, typer.Option(help="What the queue is for.", metavar="TEXT")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Have the API server check the queue, and create nothing.")
    ] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: Output = "table",
) -> None:
    """Create a queue."""
    from extender.cli import queue_verbs as verbs

    limits = {"capability": capability, "deserved": deserved, "guarantee": guarantee}
    fields = {field: verbs.amounts(f"--{field}", given or ()) for field, given in limits.items()}
    more = {"parent": parent, "weight": weight, "priority": priority, "namespaces": namespaces}
    made = verbs.manifest(name, {**fields, **more, "description": description})
    body = asyncio.run(verbs.create(made, kubeconfig, context, dry=dry_run))
    write(body, output, lambda: [f"queue {name} {'would be created' if dry_run else 'is created'}"])


@queue.command("stop")
def stop(name: Name, kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Close a queue: no workload starts in it or in the queues below it. Running workloads continue."""
    from extender.cli import queue_verbs as verbs

    asyncio.run(verbs.close(name, kubeconfig, context, closed=True))
    typer.echo(f"queue {name} is closed: no workload starts in it, and running workloads continue")


@queue.command("resume")
def resume(name: Name, kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Open a queue that was closed."""
    from extender.cli import queue_verbs as verbs

    asyncio.run(verbs.close(name, kubeconfig, context, closed=False))
    typer.echo(f"queue {name} is open: `gangshare explain queue {name}` shows whether its workloads start")


@move.command("pod")
def pod(
    pod: Workload,
    to: To,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Move a pending pod to another queue."""
    from extender.cli import explain, move

    move.pod(move.Asked(explain.key("pod", pod, namespace), to, server, kubeconfig, context), typer.echo)


@move.command("group")
def group(
    group: Workload,
    to: To,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Move a pending gang with all its pods to another queue."""
    from extender.cli import explain, move

    move.group(move.Asked(explain.key("group", group, namespace), to, server, kubeconfig, context), typer.echo)
