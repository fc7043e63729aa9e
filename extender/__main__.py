"""`gangshare` (also `kubectl gangshare`, `python -m extender`): the commands of all processes.

`extender`, `plugin`, `usage` and `simulate` are imported only when they run. The image of the plugin lacks the
extender, the image of the extender lacks NVML, and both lack the replays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from extender.cli import commands
from extender.cli.autoscaler_command import autoscaler_tags
from extender.cli.errors import CommandError, with_demo, with_process
from extender.cli.explain_commands import explain
from extender.cli.options import plain_typer
from extender.cli.queue_commands import move, queue
from extender.cli.resize_commands import resize
from extender.cli.ui_command import ui
from extender.cli.used_commands import idle
from extender.cli.whatif_command import whatif
from protos import usage as command_line

app = plain_typer(
    add_completion=True,
    no_args_is_help=True,
    help="GPU sharing, GPU affinity and gang scheduling for Kubernetes, on the stock scheduler and kubelet.",
)
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gangshare {metadata.version('gangshare')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before the command."""


@app.command(context_settings=PASSED_ON, add_help_option=False)
def extender(context: typer.Context) -> None:
    """Run the scheduler extender."""
    with with_process("extender"):
        from extender.server.command import command as run
    _run_process(run, context)


@app.command(context_settings=PASSED_ON, add_help_option=False)
def plugin(context: typer.Context) -> None:
    """Run the device plugin of this node."""
    with with_process("plugin"):
        from deviceplugin.command import command as run
    _run_process(run, context)


@app.command(context_settings=PASSED_ON, add_help_option=False)
def usage(context: typer.Context) -> None:
    """Run the measurement of this node: what each container uses of its GPUs."""
    with with_process("usage"):
        from deviceplugin.usage.command import command as run
    _run_process(run, context)


app.command("scheduler-config")(commands.scheduler_config)
app.command("autoscaler-tags")(autoscaler_tags)
app.command()(commands.top)
app.command()(idle)
app.command()(commands.classes)
app.command()(commands.queues)
app.command()(whatif)
app.command()(commands.defrag)
app.command()(ui)
app.command()(commands.demo)
app.add_typer(explain, name="explain")
app.add_typer(queue, name="queue")
app.add_typer(move, name="move")
app.add_typer(resize, name="resize")


@app.command(context_settings=PASSED_ON, add_help_option=False)
def simulate(context: typer.Context) -> None:
    """Replay a recorded workload."""
    with with_demo("gangshare simulate needs the trace replays"):
        from extender.cli.simulate import simulate as replays
    raise typer.Exit(command_line.run(replays, context.command_path, context.args))


def main() -> None:
    """The console scripts. A failed command prints one sentence and exits with the error's status."""
    of_kubectl = Path(sys.argv[0]).name.startswith("kubectl-")
    try:
        sys.exit(command_line.run(app, "kubectl gangshare" if of_kubectl else "gangshare"))
    except CommandError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.status)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _run_process(run: Callable[..., None], context: typer.Context) -> None:
    """Run the function of a process, which reads the remaining options itself."""
    process = plain_typer()
    process.command()(run)
    raise typer.Exit(command_line.run(process, context.command_path, context.args))


if __name__ == "__main__":
    main()
