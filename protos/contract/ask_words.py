"""Requests in words, for people."""

from __future__ import annotations

from protos.contract.ask import ContainerAsk, PodAsk
from protos.contract.quantity import amount_of_memory


def wanted(ask: PodAsk) -> str:
    """The ask for users: `24 GiB on one GPU`, `2 whole GPUs`, `3 MIG instances 1g.10gb`, `10 GiB on each of 2 GPUs`."""
    return " + ".join(_wanted(container, ask.unit_mib) for container in ask.containers)


def _wanted(ask: ContainerAsk, unit_mib: int) -> str:
    if ask.profile:
        amounts = part(ask, unit_mib)
        given = f" with {amounts}" + " each" * (ask.gpus > 1) if amounts else ""
        return f"{ask.gpus} MIG instance{'s' * (ask.gpus > 1)} {ask.profile}{given}"
    if ask.whole:
        return f"{ask.gpus} whole GPU{'s' * (ask.gpus > 1)}"
    return part(ask, unit_mib) + (" on one GPU" if ask.gpus == 1 else f" on each of {ask.gpus} GPUs")


def part(ask: ContainerAsk, unit_mib: int) -> str:
    """What it asks of each of its GPUs: `10 GiB and 25 slices`."""
    amounts = [amount_of_memory(ask.mem, unit_mib)] if ask.mem else []
    amounts += [f"{ask.slices} slices"] if ask.slices else []
    return " and ".join(amounts)
