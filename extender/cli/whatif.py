"""`gangshare whatif`: the question as JSON, and the answer for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.console import RenderableType

from extender.cli import console
from extender.cli.errors import CommandError
from extender.cli.manifests import Found
from extender.wire import whatif as wire
from extender.wire.answers import Verdict
from protos.contract import mig
from protos.contract.bounds import WHAT_IF_BODY

TIMEOUT_S = 45.0
"""Seconds that an answer may take: the extender plans between its decisions."""


def body(found: Found, further: Sequence[str]) -> bytes:
    """The question; raises CommandError. `further`: NODE or NODE=N each."""
    pods = [{"template": each["template"], "count": each["count"]} for each in found.pods]
    spec: dict[str, Any] = {"pods": pods, "groups": found.groups, "nodes": [_nodes(text) for text in further]}
    (namespace,) = found.namespaces if len(found.namespaces) == 1 else ("",)
    metadata = {"namespace": namespace} if namespace else {}
    made = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "metadata": metadata, "spec": spec}
    encoded = msgspec.json.encode(made)
    if len(encoded) > WHAT_IF_BODY.most:
        raise CommandError(WHAT_IF_BODY.exceeded(len(encoded)))
    return encoded


def _nodes(text: str) -> dict[str, Any]:
    name, given, count = text.partition("=")
    if not name or (given and not (count.isascii() and count.isdecimal() and 0 < int(count[:9]) < 10_000)):
        raise CommandError(f"--with-node is {text!r}: expected NODE or NODE=N, with the name of a node to be like")
    return {"like": name, "count": int(count[:9]) if given else 1}


def render(status: wire.Status, *, further: Sequence[str] = ()) -> Iterator[RenderableType]:
    """The verdict and what to do, then the workloads, and the same with the further nodes."""
    yield from _told(status.verdict, status.workloads)
    if status.further is not None:
        yield ""
        yield f"with {' and '.join(map(_more, further))}:"
        yield from _told(status.further.verdict, status.further.workloads)


def _more(text: str) -> str:
    nodes = _nodes(text)
    return f"{console.count(nodes['count'], 'more node')} like {nodes['like']}"


def _told(verdict: Verdict, workloads: Sequence[wire.Workload]) -> Iterator[RenderableType]:
    alone = len(workloads) == 1
    yield f"{_name(workloads[0])} {verdict.headline}" if alone else verdict.headline
    yield f"  what to do: {verdict.advice}"
    for workload in workloads:
        if not alone and workload.verdict.state != "now":
            yield f"  {_name(workload)} {workload.verdict.headline}"
        yield from (f"  {line}" for line in _details(workload))
    yield from _places(workloads)
    yield from _victims(workloads)


def _name(workload: wire.Workload) -> str:
    gang = "gang " if workload.kind == "gang" else ""
    return f"{gang}{workload.namespace}/{workload.name}"


def _details(workload: wire.Workload) -> Iterator[str]:
    yield from (f"warning: {warning}" for warning in workload.warnings)
    if workload.verdict.state == "now":
        return
    if workload.verdict.state not in ("waits", "never") and workload.sentence:
        yield workload.sentence
    if workload.numbers:
        yield workload.numbers
    if workload.verdict.state == "later":
        after = f"once {workload.after} has ended" if workload.after else "once others have ended"
        yield f"{after}{'' if workload.sure else ' (a guess: not all run times are known)'}"
    if workload.forbidden:
        yield f"evictions would help, but: {workload.forbidden}"
    if workload.place:
        yield f"queue {workload.queue}: number {workload.place} of {workload.in_line} pending workloads in it"


def _places(workloads: Sequence[wire.Workload]) -> Iterator[RenderableType]:
    rows = [(workload, pod) for workload in workloads for pod in workload.pods]
    if any(pod.node for _, pod in rows):
        table = console.columns("POD", "ROLE", "NODE", "GPUS")
        for workload, pod in rows:
            table.add_row(f"{workload.namespace}/{pod.name}", pod.role, pod.node or "-", _indexes(pod))
        yield ""
        yield table


def _indexes(pod: wire.Place) -> str:
    return ",".join(map(mig.shown, pod.gpus)) or "-"


def _victims(workloads: Sequence[wire.Workload]) -> Iterator[RenderableType]:
    victims = [victim for workload in workloads for victim in workload.victims]
    others = sum(workload.other_victims for workload in workloads)
    if victims:
        table = console.columns("EVICTED", "NODE")
        for victim in victims:
            table.add_row(f"{victim.namespace}/{victim.name}", victim.node)
        yield ""
        yield table
    if others:
        yield f"  {console.count(others, 'pod')} of namespaces that you may not see would be evicted"
