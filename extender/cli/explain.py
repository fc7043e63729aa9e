"""`gangshare explain pod`: where a pod is, or why it waits. Pure: the extender's books in, sentences out."""

from __future__ import annotations

from collections.abc import Iterator

from extender.cli import console, top
from extender.cli.errors import CommandError
from extender.cli.inspection import Node, Pod
from protos.contract.allocation import Allocation


def pod_key(text: str, namespace: str) -> str:
    """NAMESPACE/NAME of a pod written as NAME or NAMESPACE/NAME; raises CommandError."""
    before, slash, name = text.rpartition("/")
    if not name or (slash and not before) or "/" in before:
        raise CommandError(f"pod is {text!r}: expected NAME or NAMESPACE/NAME")
    return f"{before or namespace}/{name}"


def lines(pod: Pod, node: Node | None) -> Iterator[str]:
    """The answer, line by line; `node` is the pod's, None while it has none."""
    who = f"{pod.namespace}/{pod.name}"
    if pod.sentence:
        yield f"{who} waits for {console.duration(pod.since)} ({pod.code})"
        yield f"  {pod.sentence}"
        if pod.numbers:
            yield f"  {pod.numbers}"
    else:
        yield f"{who} is {pod.state} {'to' if pod.state == 'bound' else 'on'} {pod.node}"
    if pod.problem:
        yield f"  problem: {pod.problem}"
    if pod.allocation:
        yield from _containers(pod.allocation, node)
    elif pod.node:
        yield "  nobody says on which GPU it is: it is charged on every one that it could be on"


def _containers(allocation: Allocation, node: Node | None) -> Iterator[str]:
    models = {gpu.uuid: gpu.model for gpu in node.gpus} if node else {}
    for container, shares in allocation.containers.items():
        for share in shares:
            held = top.amount(allocation.unit_mib, allocation.slices_per_gpu, share.mem, share.slices, share.whole)
            model = models.get(share.uuid) or "unknown model"
            yield f"  container {container}: GPU {share.index} ({model}, {share.uuid}): {held}"
