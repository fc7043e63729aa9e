"""The options that several user commands share."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated, Literal

import typer

from protos.contract import names

plain_typer = partial(typer.Typer, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
"""A program of commands, whose help and errors are plain text."""
DEFAULT_SERVER = "http://127.0.0.1:12346"


def installed_in() -> str:
    """The namespace of the installation."""
    return os.environ.get(names.NAMESPACE_VARIABLE) or names.NAMESPACE


def port_forward() -> str:
    """The command by which users reach the extender."""
    return f"kubectl -n {installed_in()} port-forward deploy/{names.SCHEDULER} 12346"


Server = Annotated[
    str, typer.Option(envvar="GANGSHARE_SERVER", help="URL of the extender's status port.", metavar="URL")
]
Output = Annotated[
    Literal["table", "wide", "json", "yaml"],
    typer.Option(
        "--output", "-o", help="Format. table: fits the terminal; wide: nothing is cut; json, yaml: for programs."
    ),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Look again every two seconds, until Ctrl-C.")]
Kubeconfig = Annotated[
    str, typer.Option(help="Kubeconfig file.  [default: $KUBECONFIG or ~/.kube/config]", metavar="PATH")
]
Context = Annotated[str, typer.Option(help="Context of the kubeconfig.", metavar="NAME")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of names without a namespace.")]
