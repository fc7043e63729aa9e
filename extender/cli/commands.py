"""The options of the user commands. Each imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import typer

Output = Literal["text", "json"]
LAYOUT_HELP = "own: our own copy of the stock scheduler; shared: the cluster's one scheduler; gpushare: drop-in for"
SERVER = typer.Option(envvar="GANGSHARE_SERVER", help="The extender's status port.", metavar="URL")
DEFAULT_SERVER = "http://127.0.0.1:12346"
OUTPUT = typer.Option("--output", "-o", help="json: as the status port says it.")
CONTEXT = typer.Option(help="Of the kubeconfig.", metavar="NAME")
NAMESPACE = typer.Option("--namespace", "-n")


def _answer(body: bytes, output: Output, show: Callable[[], None]) -> None:
    """Print what the status port answered as it is, or as `show` does."""
    import msgspec

    if output == "json":
        typer.echo(msgspec.json.format(body))
    else:
        show()


def scheduler_config(
    layout: Annotated[
        Literal["own", "shared", "gpushare", "policy"],
        typer.Option(help=f"{LAYOUT_HELP} gpushare's extender; policy: the legacy Policy file, untested."),
    ] = "own",
    extender_url: Annotated[
        str | None,
        typer.Option(envvar="GANGSHARE_EXTENDER_URL", help="Where kube-scheduler reaches us.", metavar="URL"),
    ] = None,
    resource_mem: Annotated[str | None, typer.Option(envvar="GANGSHARE_RESOURCE_MEM", metavar="NAME")] = None,
    resource_slice: Annotated[str | None, typer.Option(envvar="GANGSHARE_RESOURCE_SLICE", metavar="NAME")] = None,
    resource_whole: Annotated[str | None, typer.Option(envvar="GANGSHARE_RESOURCE_WHOLE", metavar="NAME")] = None,
    resource_shared: Annotated[str | None, typer.Option(envvar="GANGSHARE_RESOURCE_SHARED", metavar="NAME")] = None,
    kubeconfig: Annotated[
        str | None,
        typer.Option(help="kube-scheduler's credentials; own: service account, else kubeadm's.", metavar="PATH"),
    ] = None,
    tls_files: Annotated[
        str,
        typer.Option(help="Ask over TLS, with tls.crt, tls.key and ca.crt of this folder.", metavar="FOLDER"),
    ] = "",
    profile: Annotated[
        list[str] | None,
        typer.Option(help="A schedulerName that layout own serves; may be repeated.", metavar="NAME"),
    ] = None,
) -> None:
    """Print kube-scheduler's configuration."""
    import msgspec

    from extender.cli import scheduler_config as config

    usual = config.defaults(layout)
    said = {"mem": resource_mem, "slice": resource_slice, "whole": resource_whole, "shared": resource_shared}
    options = config.Options(
        extender_url=extender_url or usual.extender_url,
        resources=msgspec.structs.replace(usual.resources, **{key: name for key, name in said.items() if name}),
        kubeconfig=usual.kubeconfig if kubeconfig is None else kubeconfig,
        tls_files=tls_files.rstrip("/"),
        profiles=tuple(profile or usual.profiles),
    )
    typer.echo(config.render(layout, options), nl=False)
    if layout == "policy":
        typer.echo(config.NOTES[layout], err=True)


def top(
    node: Annotated[str | None, typer.Argument(help="Only this node.")] = None,
    pods: Annotated[bool, typer.Option("--pods", help="Name the pods on each GPU.")] = False,
    output: Annotated[Output, OUTPUT] = "text",
    server: Annotated[str, SERVER] = DEFAULT_SERVER,
) -> None:
    """Show nodes, GPUs, pods and what waits."""
    from extender.cli import console, inspection
    from extender.cli import top as view
    from extender.wire import answers

    if node:
        body = inspection.fetch(server, f"inspect/{node}", f"node is {node!r}: expected one that the extender knows")
        _answer(body, output, lambda: console.show(view.gpus([inspection.decode(body, answers.Node)], pods)))
    else:
        body = inspection.fetch(server, "inspect")
        _answer(body, output, lambda: console.show(*view.render(inspection.decode(body, answers.Inspection), pods)))


def classes(
    output: Annotated[Output, OUTPUT] = "text",
    server: Annotated[str, SERVER] = DEFAULT_SERVER,
) -> None:
    """Show GpuClasses and models of GPUs, and how many there are of each."""
    from extender.cli import classes as view
    from extender.cli import console, inspection
    from extender.wire import listings

    body = inspection.fetch(server, "classes")
    _answer(body, output, lambda: console.show(*view.render(inspection.decode(body, listings.Classes))))


def queues(
    quotas: Annotated[bool, typer.Option("--quotas", help="Beside them, Kubernetes' ResourceQuotas.")] = False,
    kubeconfig: Annotated[str, typer.Option(help="Your credentials, for --quotas.", metavar="PATH")] = "",
    context: Annotated[str, CONTEXT] = "",
    output: Annotated[Output, OUTPUT] = "text",
    server: Annotated[str, SERVER] = DEFAULT_SERVER,
) -> None:
    """Show the tree of queues: what is due to each, what it has and asks, and who waits."""
    import asyncio

    from extender.cli import console, inspection
    from extender.cli import queues as view
    from extender.wire import listings

    def show() -> None:
        beside = asyncio.run(view.quotas(kubeconfig, context)) if quotas else ()
        console.show(*view.render(inspection.decode(body, listings.Queues), beside))

    body = inspection.fetch(server, "queues")
    _answer(body, output, show)


def demo(
    pods: Annotated[int, typer.Option(metavar="N", help="How many pods of the trace arrive.")] = 300,
    speed: Annotated[float, typer.Option(help="Arrivals so many times as fast.")] = 1.0,
    serve: Annotated[bool, typer.Option("--serve", help="Keep the cluster up until Ctrl-C.")] = False,
) -> None:
    """Replay a real GPU trace and a gang on an embedded cluster, and check who got what."""
    from extender.cli.errors import with_demo
    from protos import logs

    with with_demo("gangshare demo needs the embedded cluster"):
        from extender.cli.demo import run
    logs.configure("console", "error")
    if not run.run(run.Options(pods=pods, speed=speed, serve=serve)):
        raise typer.Exit(1)


def defrag(
    whom: Annotated[str, typer.Option("--for", metavar="POD|GROUP", help="NAME or NAMESPACE/NAME of who waits.")],
    namespace: Annotated[str, NAMESPACE] = "default",
    max_moves: Annotated[int, typer.Option(min=0, max=64, metavar="N", help="Pods that may be moved at most.")] = 8,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="POD", help="A pod that is not to be moved; may be repeated.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Reserve the GPUs and evict the pods in the way.")] = False,
    kubeconfig: Annotated[str, typer.Option(help="Your credentials, for --apply.", metavar="PATH")] = "",
    context: Annotated[str, CONTEXT] = "",
    output: Annotated[Output, OUTPUT] = "text",
    server: Annotated[str, SERVER] = DEFAULT_SERVER,
) -> None:
    """Tell which restartable pods to move so that a pod or gang that waits fits, or move them."""
    import asyncio
    from functools import partial

    from extender.cli import console, inspection
    from extender.cli import defrag as moves
    from extender.cli.explain import key
    from extender.wire import listings

    kept = [key("--keep", pod, namespace) for pod in keep or ()]
    body = moves.fetch(server, key("--for", whom, namespace), max_moves, kept)
    plan = inspection.decode(body, listings.Plan)
    _answer(body, output, lambda: console.show(*moves.render(plan)))
    if not plan.fits:
        raise typer.Exit(1)
    if apply and plan.moves:
        asyncio.run(moves.apply(plan, server, kubeconfig, context, partial(typer.echo, err=output == "json")))


explain = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Tell why something is as it is.")


@explain.command("pod")
def explain_pod(
    pod: Annotated[str, typer.Argument(help="NAME or NAMESPACE/NAME.")],
    namespace: Annotated[str, NAMESPACE] = "default",
    output: Annotated[Output, typer.Option("--output", "-o")] = "text",
    server: Annotated[str, SERVER] = DEFAULT_SERVER,
) -> None:
    """Tell on which GPUs a pod is, or why it waits; and how well it is placed there and elsewhere."""
    from extender.cli import explain as view
    from extender.cli import inspection
    from extender.wire import answers

    def show() -> None:
        found, there = inspection.decode(body, answers.Pod), None
        if found.node:
            there = inspection.decode(inspection.fetch(server, f"inspect/{found.node}"), answers.Node)
        typer.echo("\n".join((*view.lines(found, there), *view.ranking(found))))

    key = view.key("pod", pod, namespace)
    body = inspection.fetch(server, f"explain/{key}", f"pod is {key}: expected one that asks for GPUs and is not over")
    _answer(body, output, show)


@explain.command("group")
def explain_group(
    group: Annotated[str, typer.Argument(help="NAME or NAMESPACE/NAME.")],
    namespace: Annotated[str, NAMESPACE] = "default",
    output: Annotated[Output, typer.Option("--output", "-o")] = "text",
    server: Annotated[str, SERVER] = DEFAULT_SERVER,
) -> None:
    """Tell how far a gang is, or why it waits."""
    from extender.cli import explain as view
    from extender.cli import inspection
    from extender.wire import answers

    key = view.key("group", group, namespace)
    missing = f"group is {key}: expected one that has pods or a PodGroup"
    body = inspection.fetch(server, f"explain/groups/{key}", missing)
    _answer(body, output, lambda: typer.echo("\n".join(view.group_lines(inspection.decode(body, answers.Group)))))
