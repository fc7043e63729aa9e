"""Requests that no GPU of the cluster can satisfy, even if all were free, since none matches; and why."""

from __future__ import annotations

from collections.abc import Iterator

from extender.engine.state.stock import Stock
from extender.engine.types import refusals
from protos.contract.ask import PodAsk
from protos.contract.reason import Reason
from protos.contract.selection import Selection, capability

LONGEST_SHOWN = 120
"""Characters of a list of globs in a sentence."""


class Lacking:
    """Compares requests with the stock."""

    def __init__(self, stock: Stock) -> None:
        self._stock = stock

    def of(self, ask: PodAsk) -> Reason | None:
        """What the cluster lacks for the request's selection, None if nothing."""
        return self._compare(ask) if ask.selection.selective else None

    def _compare(self, ask: PodAsk) -> Reason | None:
        wanted, conditions = ask.selection, list(self._conditions(ask.selection))
        for words, alone, instead in conditions:
            if not self._stock.accepted(alone):
                return refusals.no_match(
                    words, instead if self._stock.gpus and instead else self._stock.has(alone.models)
                )
        words = " and ".join(words for words, _, _ in conditions)
        if not self._stock.accepted(wanted):
            return refusals.no_match(words, self._stock.has())
        return self._unjoined(wanted, max(container.gpus for container in ask.containers), words)

    def _conditions(self, wanted: Selection) -> Iterator[tuple[str, Selection, str]]:
        """The conditions of a selection on each GPU: in words, as selections, and what the cluster has instead."""
        kinds = self._stock.gpus
        sizes = [kind.mem_mib for kind in kinds] or [0]
        if wanted.uuids:
            yield f"uuid {_listed(wanted.uuids)}", Selection(uuids=wanted.uuids), ""
        if wanted.model:
            yield f"model {wanted.model} of its gang", Selection(model=wanted.model), ""
        for globs in filter(None, (wanted.models, wanted.also)):
            yield f"model {_listed(globs)}", Selection(models=globs), ""
        if size := wanted.min_mem_mib:
            largest = f"the largest has {_memory(max(sizes))}"
            yield f"min-gpu-memory {_quantity(size)}", Selection(min_mem_mib=size), largest
        if size := wanted.max_mem_mib:
            smallest = f"the smallest has {_memory(min(sizes))}"
            yield f"its class's maxMemory {_quantity(size)}", Selection(max_mem_mib=size), smallest
        if clock := wanted.min_clock_mhz:
            fastest = f"the fastest has {max((kind.clock_mhz for kind in kinds), default=0)} MHz"
            yield f"min-clock-mhz {clock}", Selection(min_clock_mhz=clock), fastest
        if wanted.min_cc != (0, 0):
            newest = f"the newest has {_version(max(map(capability, kinds), default=(0, 0)))}"
            yield f"min-compute-capability {_version(wanted.min_cc)}", Selection(min_cc=wanted.min_cc), newest

    def _unjoined(self, wanted: Selection, count: int, words: str) -> Reason | None:
        """The refusal if no node has enough GPUs joined as requested."""
        joined = ["link nvlink"] if wanted.link == "nvlink" else []
        joined += ["one NUMA node"] if wanted.numa_local else []
        if count < 2 or not joined or self._stock.joins(wanted, count):
            return None
        largest = min(count - 1, self._stock.widest())
        most = next((fewer for fewer in range(largest, 1, -1) if self._stock.joins(wanted, fewer)), 0)
        return refusals.not_joined(count, " and ".join(joined), words, most)


def _listed(globs: tuple[str, ...]) -> str:
    text = ",".join(globs)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _version(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _quantity(mib: int) -> str:
    """MiB as in an annotation."""
    return f"{mib}Mi" if mib % 1024 else f"{mib // 1024}Gi"


def _memory(mib: int) -> str:
    """MiB for people."""
    return f"{mib // 1024} GiB" if mib >= 1024 else f"{mib} MiB"
