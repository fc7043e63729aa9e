"""What could not be served even if every GPU of the cluster were free, since none is as selected, and why.

Worked out once for each ask and stock of GPUs, so that a decision pays for a look into a table.
"""

from __future__ import annotations

from collections.abc import Iterator

from extender.engine.state.stock import Stock
from extender.engine.types import refusals
from protos.contract.ask import PodAsk
from protos.contract.reason import Reason
from protos.contract.selection import Selection, capability

REMEMBERED = 1024
"""Asks whose answer is remembered."""
LONGEST_SHOWN = 120
"""Characters of a list of globs in a sentence."""


class Lacking:
    """Asks held against all that there is."""

    def __init__(self, stock: Stock) -> None:
        self._stock = stock
        self._version = stock.version
        self._known: dict[PodAsk, Reason | None] = {}

    def of(self, ask: PodAsk) -> Reason | None:
        """What is missing, None if the ask's selection is not to blame."""
        if self._version != self._stock.version or len(self._known) >= REMEMBERED:
            self._version = self._stock.version
            self._known.clear()
        if ask not in self._known:
            self._known[ask] = self._look(ask) if ask.selection.selective else None
        return self._known[ask]

    def _look(self, ask: PodAsk) -> Reason | None:
        wanted, conditions = ask.selection, list(_conditions(ask.selection))
        for words, alone in conditions:
            if not self._stock.accepted(alone):
                return refusals.no_match(words, self._instead(alone))
        words = " and ".join(words for words, _ in conditions)
        if not self._stock.accepted(wanted):
            return refusals.no_match(words, f"it has {self._stock.models()}")
        return self._unjoined(wanted, max(container.gpus for container in ask.containers), words)

    def _unjoined(self, wanted: Selection, count: int, words: str) -> Reason | None:
        """That nowhere so many GPUs for one container lie as wanted."""
        lie = ["link nvlink"] if wanted.link == "nvlink" else []
        lie += ["one NUMA node"] if wanted.numa_local else []
        if count < 2 or not lie or self._stock.joins(wanted, count):
            return None
        largest = min(count - 1, self._stock.widest())
        most = next((fewer for fewer in range(largest, 1, -1) if self._stock.joins(wanted, fewer)), 0)
        return refusals.not_joined(count, " and ".join(lie), words, most)

    def _instead(self, alone: Selection) -> str:
        """What there is instead of GPUs that meet this one condition, in words."""
        kinds = self._stock.gpus
        if alone.min_mem_mib and kinds:
            return f"the largest has {_memory(max(found.mem_mib for found in kinds))}"
        if alone.max_mem_mib and kinds:
            return f"the smallest has {_memory(min(found.mem_mib for found in kinds))}"
        if alone.min_clock_mhz and kinds:
            return f"the fastest has {max(found.clock_mhz for found in kinds)} MHz"
        if alone.min_cc != (0, 0) and kinds:
            return f"the newest has {_version(max(map(capability, kinds)))}"
        return f"it has {self._stock.models()}"


def _conditions(wanted: Selection) -> Iterator[tuple[str, Selection]]:
    """What a selection asks of each GPU, one by one: in words, and alone."""
    if wanted.uuids:
        yield f"uuid {_listed(wanted.uuids)}", Selection(uuids=wanted.uuids)
    for globs in filter(None, (wanted.models, wanted.also)):
        yield f"model {_listed(globs)}", Selection(models=globs)
    if wanted.min_mem_mib:
        yield f"min-gpu-memory {_quantity(wanted.min_mem_mib)}", Selection(min_mem_mib=wanted.min_mem_mib)
    if wanted.max_mem_mib:
        yield f"its class's maxMemory {_quantity(wanted.max_mem_mib)}", Selection(max_mem_mib=wanted.max_mem_mib)
    if wanted.min_clock_mhz:
        yield f"min-clock-mhz {wanted.min_clock_mhz}", Selection(min_clock_mhz=wanted.min_clock_mhz)
    if wanted.min_cc != (0, 0):
        yield f"min-compute-capability {_version(wanted.min_cc)}", Selection(min_cc=wanted.min_cc)


def _listed(globs: tuple[str, ...]) -> str:
    text = ",".join(globs)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _version(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _quantity(mib: int) -> str:
    """MiB as one writes them in an annotation."""
    return f"{mib}Mi" if mib % 1024 else f"{mib // 1024}Gi"


def _memory(mib: int) -> str:
    """MiB as people read them."""
    return f"{mib // 1024} GiB" if mib >= 1024 else f"{mib} MiB"
