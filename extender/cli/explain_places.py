"""`gangshare explain node|queue|gpu`: a verdict, what to do, and the details. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from extender.cli import console, gpu_table, queues
from extender.cli.explain import first_lines, start
from extender.wire.answers import GpuPage, Node, NodePage
from extender.wire.listings import QueuePage, Queues
from protos.contract import mig
from protos.contract.isolation import INSTANCE
from protos.contract.reason import listed


def node(page: NodePage) -> Iterator[RenderableType]:
    """A node: whether it takes new pods, and its GPUs with their pods."""
    yield from first_lines(page.name, page.verdict, f"is {page.state}")
    if page.free:
        yield f"  free beside GPUs: {', '.join(f'{amount} {resource}' for resource, amount in page.free.items())}"
    yield from _isolation(page)
    if page.gpus or page.unplaced:
        yield from ("", gpu_table.gpus([page], pods=True), "")
        yield from (f"GPU {mig.shown(gpu.index)}: {gpu.uuid}" for gpu in page.gpus)


def gpu(page: GpuPage) -> Iterator[RenderableType]:
    """A GPU: whether it takes new pods, and its pods."""
    what = f"MIG instance {mig.shown(page.gpu.index)}" if page.gpu.profile else f"GPU {page.gpu.index}"
    yield from first_lines(f"{what} of {page.node}", page.verdict, f"is {page.gpu.health}")
    yield f"  UUID: {page.gpu.uuid}"
    if page.gpu.profile:
        yield f"  MIG profile: {page.gpu.profile}"
    yield from _isolation(page)
    node = Node(name=page.node, unit_mib=page.unit_mib, slices_per_gpu=page.slices_per_gpu, gpus=(page.gpu,))
    yield from ("", gpu_table.gpus([node], pods=True))


def _isolation(page: NodePage | GpuPage) -> Iterator[str]:
    """How parts of GPUs are isolated, if the node publishes it, and why not better."""
    if page.isolation:
        what = "isolation" if page.isolation == INSTANCE else "isolation of parts"
        yield f"  {what}: {page.isolation}" + (f" ({page.isolation_why})" if page.isolation_why else "")


def queue(page: QueuePage) -> Iterator[RenderableType]:
    """A queue: whether its pods start, its amounts, and who is first in it."""
    yield from first_lines(f"queue {page.name}", page.verdict, "is closed" if page.closed else "is open")
    if page.line:
        waiters = [f"{each.who} ({console.duration(each.seconds)})" for each in page.line]
        more = [""] * (page.in_line - len(page.line))
        yield f"  first of {page.in_line} pending workloads: {listed([*waiters, *more], len(waiters))}"
    if page.first is not None:
        yield f"  {page.first.who} {start(page.first)}"
    yield from ("", *queues.render(Queues(queues=(page,))))
