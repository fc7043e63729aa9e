"""The options of the user commands. Each command imports what it needs when it runs, so that `--help` is fast."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from extender.cli import completion
from extender.cli.options import DEFAULT_SERVER, Context, Kubeconfig, Namespace, Output, Server, Watch
from extender.cli.show import Page, show, watch, write

if TYPE_CHECKING:
    from rich.console import RenderableType

LAYOUT_HELP = "own: a second kube-scheduler beside the cluster's; shared: the cluster's only scheduler; gpushare: as"


def scheduler_config(
    layout: Annotated[
        Literal["own", "shared", "gpushare", "policy"],
        typer.Option(help=f"{LAYOUT_HELP} gpushare's extender is called; policy: the legacy Policy file, untested."),
    ] = "own",
    extender_url: Annotated[
        str | None,
        typer.Option(
            envvar="GANGSHARE_EXTENDER_URL", help="URL at which kube-scheduler calls the extender.", metavar="URL"
        ),
    ] = None,
    resource_mem: Annotated[
        str | None,
        typer.Option(help="Name of the resource for GPU memory.", envvar="GANGSHARE_RESOURCE_MEM", metavar="NAME"),
    ] = None,
    resource_slice: Annotated[
        str | None,
        typer.Option(help="Name of the resource for time slices.", envvar="GANGSHARE_RESOURCE_SLICE", metavar="NAME"),
    ] = None,
    resource_whole: Annotated[
        str | None,
        typer.Option(help="Name of the resource for whole GPUs.", envvar="GANGSHARE_RESOURCE_WHOLE", metavar="NAME"),
    ] = None,
    resource_shared: Annotated[
        str | None,
        typer.Option(help="Name of the resource for replicas.", envvar="GANGSHARE_RESOURCE_SHARED", metavar="NAME"),
    ] = None,
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            help="Kubeconfig of kube-scheduler.  [default: none; in the layouts gpushare and policy, that of kubeadm]",
            metavar="PATH",
        ),
    ] = None,
    tls_files: Annotated[
        str,
        typer.Option(
            help="Folder of the files tls.crt, tls.key and ca.crt. kube-scheduler then calls the extender over TLS.",
            metavar="FOLDER",
        ),
    ] = "",
    profile: Annotated[
        list[str] | None,
        typer.Option(help="schedulerName of a profile, for layout own. May be repeated.", metavar="NAME"),
    ] = None,
    mig_profile: Annotated[
        list[str] | None,
        typer.Option(help="MIG profile beside those that NVIDIA documents. May be repeated.", metavar="NAME"),
    ] = None,
) -> None:
    """Print kube-scheduler's configuration."""
    import msgspec

    from extender.cli import scheduler_config as config

    defaults = config.defaults(layout)
    resources = {"mem": resource_mem, "slice": resource_slice, "whole": resource_whole, "shared": resource_shared}
    options = config.Options(
        extender_url=extender_url or defaults.extender_url,
        resources=msgspec.structs.replace(defaults.resources, **{key: name for key, name in resources.items() if name}),
        kubeconfig=defaults.kubeconfig if kubeconfig is None else kubeconfig,
        tls_files=tls_files.rstrip("/"),
        profiles=tuple(profile or defaults.profiles),
        mig_profiles=tuple(mig_profile or ()),
    )
    typer.echo(config.render(layout, options), nl=False)
    if layout == "policy":
        typer.echo(config.NOTES[layout], err=True)


def top(
    by: Annotated[
        Literal["gpu", "node", "model", "namespace", "queue"], typer.Option("--by", help="What each row sums up.")
    ] = "node",
    node: Annotated[str, typer.Option(help="Show only nodes of this name.", metavar="GLOB")] = "",
    model: Annotated[str, typer.Option(help="Show only GPUs of this model.", metavar="GLOB")] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Show only pods of this namespace, and their GPUs.", metavar="GLOB")
    ] = "",
    queue: Annotated[
        str,
        typer.Option(
            help="Show only pods of this queue, and their GPUs.", metavar="GLOB", autocompletion=completion.queues
        ),
    ] = "",
    sort: Annotated[
        Literal["name", "free", "used", "pods"],
        typer.Option(help="Order of the rows. free, used: most GPU memory first; pods: most pods first."),
    ] = "name",
    pods: Annotated[bool, typer.Option("--pods", help="Show GPUs, and the pods on each.")] = False,
    used: Annotated[
        bool,
        typer.Option(
            "--used",
            help="Show what containers really use, beside what they were promised; with --by namespace or queue in "
            "sums. Needs the component usage.",
        ),
    ] = False,
    watching: Watch = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: Output = "table",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show GPUs and their use, running pods, and pending gangs and pods."""
    from extender.cli import top as view
    from extender.cli.top_rows import Filters, selected
    from extender.wire import answers

    wanted = view.View(by=by, sort=sort, pods=pods, everything=output == "wide")
    filters = Filters(node=node, model=model, namespace=namespace, queue=queue)
    if used:
        from extender.cli import used_commands

        made = used_commands.top(filters, (by, sort), (kubeconfig, context), server)
        (watch if watching else show)(made, output)
        return
    narrow = partial(selected, filters=filters) if any(filters) else None
    page = Page(server, "inspect", answers.Inspection, lambda books: view.render(books, wanted), narrow=narrow)
    (watch if watching else show)(page, output)


def classes(output: Output = "table", server: Server = DEFAULT_SERVER) -> None:
    """Show GpuClasses and GPU models, and the number of GPUs of each."""
    from extender.cli import classes as view
    from extender.wire import listings

    show(Page(server, "classes", listings.Classes, view.render), output)


def queues(
    quotas: Annotated[bool, typer.Option("--quotas", help="Show the ResourceQuotas of Kubernetes, too.")] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: Output = "table",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show the tree of queues: fair share, allocation and requests of each queue, and its pending pods."""
    import asyncio

    from extender.cli import queues as view
    from extender.wire import listings

    def render(found: listings.Queues) -> Iterable[RenderableType]:
        return view.render(found, asyncio.run(view.quotas(kubeconfig, context)) if quotas else ())

    show(Page(server, "queues", listings.Queues, render), output)


def demo(
    pods: Annotated[int, typer.Option(metavar="N", help="Number of the trace's pods that arrive.")] = 300,
    speed: Annotated[float, typer.Option(help="Factor by which pods arrive faster than in the trace.")] = 1.0,
    serve: Annotated[bool, typer.Option("--serve", help="Keep the cluster up until Ctrl-C.")] = False,
    ui: Annotated[bool, typer.Option("--ui", help="With --serve or --empty: show the cluster in the browser.")] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Only the cluster, without pods, until Ctrl-C.")] = False,
) -> None:
    """Replay a real GPU trace and a gang on an embedded cluster, and check the GPUs of each container."""
    from extender.cli.errors import with_demo
    from protos import logs

    with with_demo("gangshare demo needs the embedded cluster"):
        from extender.cli.demo import run
    logs.configure("console", "error")
    if not run.run(pods, speed, serve, ui, empty):
        raise typer.Exit(1)


def defrag(
    workload: Annotated[
        str, typer.Option("--for", metavar="NAME", help="The pending pod or gang: NAME or NAMESPACE/NAME.")
    ],
    namespace: Namespace = "default",
    max_moves: Annotated[int, typer.Option(min=0, max=64, metavar="N", help="Maximum number of pods to move.")] = 8,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="POD", help="A pod that must not be moved. May be repeated.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Reserve the GPUs and evict the pods to move.")] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    output: Output = "table",
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show which restartable pods to move so that a pending pod or gang fits; --apply moves them."""
    import asyncio

    from extender.cli import defrag as moves
    from extender.cli import inspection
    from extender.cli.explain import key
    from extender.wire import listings

    kept = [key("--keep", pod, namespace) for pod in keep or ()]
    body = moves.fetch(server, key("--for", workload, namespace), max_moves, kept)
    plan = inspection.decode(body, listings.Plan)
    write(body, output, lambda: moves.render(plan))
    if not plan.fits:
        raise typer.Exit(1)
    if apply and plan.moves:
        asyncio.run(moves.apply(plan, server, kubeconfig, context, partial(typer.echo, err=output in ("json", "yaml"))))
