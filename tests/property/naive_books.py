"""What should be booked of a GPU, counted anew from the pods on its node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import peak
from protos.contract.inventory import Gpu

Counts = tuple[int, int, int, int]
"""Units, slices, pods that have it whole, pods that share it."""


def found(books: NodeBooks) -> dict[str, Counts]:
    """What is booked, by GPU."""
    return {uuid: (b.mem_used, b.slices_used, b.wholes, b.sharers) for uuid, b in books.gpus.items()}


def counted(
    gpu: Gpu,
    sure: Iterable[Mapping[str, Demand]],
    soft: Iterable[Mapping[str, Demand]],
    unknown: Iterable[PodAsk],
) -> Counts:
    """What should be: `sure` is held by pods that have it, `soft` kept for some; `unknown` pods may be here."""
    here = [charges[gpu.uuid] for charges in sure if gpu.uuid in charges]
    kept = [charges[gpu.uuid] for charges in soft if gpu.uuid in charges]
    maybe = [demand for demand in (_possible(ask, gpu, here) for ask in unknown) if demand is not None]
    every = [*here, *kept, *maybe]
    wholes = sum(d.whole for d in every)
    return sum(d.mem for d in every), sum(d.slices for d in every), wholes, len(every) - wholes


def _possible(ask: PodAsk, gpu: Gpu, here: Collection[Demand]) -> Demand | None:
    """What a pod takes of the GPU if it is on it; None if there is no room beside those that have it."""
    mem, slices = sum(d.mem for d in here), sum(d.slices for d in here)
    parts = []
    for each in ask.containers:
        if gpu.mig or each.profile:
            if not here and (instance := of_instance(each, gpu)) is not None:
                parts.append((each, instance))
            continue
        part = Demand(each.mem or gpu.mem * each.slices // 100, each.slices, False)
        fits = not here if each.whole else mem + part.mem <= gpu.mem and slices + part.slices <= 100
        if fits and not any(d.whole for d in here):
            parts.append((each, Demand(gpu.mem, 100, True) if each.whole else part))
    return peak(parts) if parts else None


def of_instance(ask: ContainerAsk, gpu: Gpu) -> Demand | None:
    """All of an instance that satisfies the container, on a node that gives none to requests for whole GPUs."""
    named, slices = ask.profile == gpu.mig, 100 * int(gpu.profile[:1] or 0) // 7
    fits = gpu.profile and ask.mem <= gpu.mem and ask.slices <= slices
    plain = not ask.profile and not ask.whole and ask.gpus == 1
    return Demand(gpu.mem, slices, True) if fits and (named or plain) else None
