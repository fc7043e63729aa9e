"""`gangshare simulate`: replays of recorded workloads. The replays are imported when they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extender.cli.errors import CommandError
from extender.cli.options import Output, plain_typer
from extender.cli.show import write
from extender.sim.jobtrace import choices as jobs_choices
from extender.sim.openb.choices import ListName, Policy

if TYPE_CHECKING:
    from rich.console import RenderableType

    from extender.sim.jobtrace.figures import Figures
    from extender.sim.openb.replay import Row

DECIMALS = 2
MIN_INFLATE, MAX_INFLATE = 1, 1000
MAX_NODES, MAX_GPUS = 100_000, 1024
QUIET_S = 1.0
"""Replays that take longer show their progress on standard error."""

simulate = plain_typer(no_args_is_help=True, help="Replay a recorded workload.")


@simulate.command("openb")
def openb(
    nodes: Annotated[Path, typer.Option(help="Node list of the trace, as CSV.", metavar="FILE")],
    pods: Annotated[Path, typer.Option(help="Pod list of the trace, as CSV.", metavar="FILE")],
    seed: Annotated[int, typer.Option(help="Seed of the order in which pods arrive.", metavar="N")] = 42,
    inflate: Annotated[
        float,
        typer.Option(
            help="Requested GPUs of all pods that arrive, in percent of the cluster's GPUs.", metavar="PERCENT"
        ),
    ] = 130,
    policy: Annotated[
        Policy, typer.Option(help="Scheduling policy. gangshare: the engine of the extender.")
    ] = "gangshare",
    which: Annotated[
        ListName, typer.Option("--list", help="The pod list as it is, or a list derived from it.")
    ] = "default",
    shuffle_node_names: Annotated[
        bool, typer.Option("--shuffle-node-names", help="Shuffle the names of the nodes with the seed.")
    ] = False,
    output: Output = "table",
    plot: Annotated[
        Path | None, typer.Option(help="Plot the result beside the published curves (.png, .svg).", metavar="FILE")
    ] = None,
) -> None:
    """Replay the openb trace by the protocol of the FGD experiment, and show how much of the GPUs gets allocated."""
    from extender.cli.progress import Progress
    from extender.sim.openb import derive, replay, trace, workload
    from extender.sim.openb import plot as picture
    from extender.sim.table import TraceError

    if not MIN_INFLATE <= inflate <= MAX_INFLATE:
        raise CommandError(f"--inflate is {inflate:g}: expected {MIN_INFLATE} to {MAX_INFLATE}")
    try:
        if plot:
            picture.check(plot)
        cluster = trace.read_nodes(nodes)
        listed = derive.derived(which, trace.read_pods(pods), cluster)
        if shuffle_node_names:
            cluster = workload.renamed(cluster, seed)
        run = replay.Run(cluster, listed, policy, seed, inflate)
        with Progress(stderr=True, delay_s=QUIET_S) as progress:
            rows = replay.replay(run, progress=lambda pods, of: progress.show(f"{pods} of {of} pods have arrived"))
        allocated = replay.at(rows)
        write(_json(policy, seed, allocated, rows), output, lambda: _parts(rows, allocated))
        if plot:
            label = f"{policy}, seed {seed}" + (f", list {which}" if which != "default" else "")
            picture.draw(plot, label, rows)
    except (TraceError, picture.PlotError) as error:
        raise CommandError(str(error)) from error


def _json(policy: str, seed: int, allocated: Mapping[int, float | None], rows: Sequence[Row]) -> bytes:
    import msgspec

    at = {str(column): None if value is None else round(value, DECIMALS) for column, value in allocated.items()}
    curve = [[row.arrived, round(row.allocated, DECIMALS), round(row.fragments, DECIMALS)] for row in rows]
    return msgspec.json.encode({"policy": policy, "seed": seed, "at": at, "curve": curve})


def _parts(rows: Sequence[Row], allocated: Mapping[int, float | None]) -> list[RenderableType]:
    from extender.cli import console

    table = console.columns("ARRIVED %", "ALLOCATED %", "FRAGMENTS %")
    for row in rows:
        table.add_row(str(row.arrived), f"{row.allocated:.2f}", f"{row.fragments:.2f}")
    at = (f"at {c}: {'never reached' if value is None else f'{value:.2f} %'}" for c, value in allocated.items())
    return [table, "", "allocated " + ", ".join(at)]


@simulate.command("jobs")
def jobs(
    trace: Annotated[Path, typer.Option(help="Job list, as CSV, plain or gzipped.", metavar="FILE")],
    nodes: Annotated[int, typer.Option(help="Number of nodes.", metavar="N", min=1, max=MAX_NODES)],
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of each node.", metavar="N", min=1, max=MAX_GPUS)] = 8,
    policy: Annotated[
        jobs_choices.Policy, typer.Option(help="Scheduling policy. gangshare: the extender's queue order and backfill.")
    ] = "gangshare",
    queues: Annotated[
        str | None,
        typer.Option(help="Column with the queue of each job. All queues have the same weight.", metavar="COLUMN"),
    ] = None,
    durations: Annotated[
        jobs_choices.Durations,
        typer.Option(help="Run times that the policy knows. noisy: 0.5 to 1.5 times those of the trace."),
    ] = "trace",
    seed: Annotated[int, typer.Option(help="Seed of the noise.", metavar="N")] = 0,
    preempt: Annotated[bool, typer.Option("--preempt", help="Stop jobs for others and continue them later.")] = False,
    restart_cost: Annotated[
        float, typer.Option(help="Run time that is lost by a restart.", metavar="SECONDS", min=0, max=1e9)
    ] = 60,
    output: Output = "table",
) -> None:
    """Replay a list of jobs, and show how long they wait."""
    import msgspec

    from extender.cli.progress import Progress
    from extender.sim.jobtrace import figures, replay, restarts
    from extender.sim.jobtrace import trace as lists
    from extender.sim.table import TraceError

    if preempt and policy != "gangshare":
        raise CommandError(f"--preempt with --policy {policy}: expected --policy gangshare, which can stop jobs")
    try:
        listed = lists.with_expected(lists.read_jobs(trace, queues), durations, seed)
        with Progress(stderr=True, delay_s=QUIET_S) as progress:

            def show(ended: int, of: int) -> None:
                progress.show(f"{ended} of {of} jobs have ended")

            if preempt:
                ran = restarts.replay(listed, nodes, gpus_per_node, restart_cost, show)
            else:
                ran = replay.replay(listed, nodes, gpus_per_node, policy, show)
    except TraceError as error:
        raise CommandError(str(error)) from error
    found = figures.figures(policy, ran, nodes * gpus_per_node)
    write(msgspec.json.encode(found), output, lambda: [_jobs_table(found)])


def _jobs_table(found: Figures) -> RenderableType:
    from extender.cli import console

    table = console.columns("FIGURE", "VALUE")
    rows = {
        "mean JCT": found.mean_jct_s,
        "p95 JCT": found.p95_jct_s,
        "p99 JCT": found.p99_jct_s,
        "mean wait": found.mean_wait_s,
        **{f"mean wait, {size} GPU{'s' * (size != '1')}": wait for size, wait in found.wait_by_size.items()},
        "makespan": found.makespan_s,
    }
    for name, seconds in rows.items():
        table.add_row(name, "no such job" if seconds is None else f"{seconds:,.0f} s")
    table.add_row("utilisation", f"{found.utilisation:.1%}")
    return table
