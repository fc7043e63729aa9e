"""Requests that no node of the cluster could take even if it were empty, and why: the one rule for that.

Such a pod waits for another node, not for room. It counts nothing in the demand of its queue, and nothing is reserved
for it. The answers are kept until the nodes change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Literal

import msgspec

from extender.engine.state.empty_nodes import IN_TREE, EmptyNodes
from extender.engine.state.lacking import Lacking
from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import PodState
from extender.engine.types import refusals
from extender.engine.types.amounts import in_words
from protos.contract import ask_words
from protos.contract.ask import ContainerAsk, PodAsk, demanding
from protos.contract.inventory import IN_MIG_MODE
from protos.contract.names import GPU_COUNT, Resources
from protos.contract.quantity import amount_of_memory
from protos.contract.reason import Reason
from protos.contract.remembered import Remembered
from protos.contract.selection import suits
from protos.contract.served import ONE_GPU, lack

REMEMBERED, WEIGHT = 4096, 2**20
"""Cached answers, and the characters of the globs in their requests."""
Question = tuple[PodAsk, tuple[int, ...]]
"""GPUs, and amounts of `IN_TREE`."""
MOST_KINDS = 256
"""With more kinds of nodes no request is called too large."""


class CannotFit:
    """Compares requests with all nodes as if these were empty."""

    def __init__(self, ledger: Ledger, resources: Resources) -> None:
        self._stock, self._resources = ledger.stock, resources
        self._lack = Lacking(ledger.stock)
        self._nodes = EmptyNodes(ledger.nodes, (resources.whole, resources.shared))
        self._known: Remembered[Question, Reason | Literal[False]] = Remembered(
            REMEMBERED, WEIGHT, lambda asked: asked[0].selection.length
        )
        self._basis = 0, 0
        self._generation = 0

    def changed(self, node: str) -> None:
        """The node was added, changed or removed, or bookings on it changed."""
        self._nodes.changed(node)

    @property
    def generation(self) -> int:
        """Counts changes of the kinds of nodes: without one the same requests fit, but for those that name UUIDs."""
        return self._nodes.generation

    def outdated(self) -> bool:
        """Whether the kinds of nodes have changed since the last call."""
        before, self._generation = self._generation, self.generation
        return before != self._generation

    def of(self, pod: PodState) -> Reason | None:
        """Why no node could take the pod; None if one could, or it requests no GPU."""
        return self.why(pod.ask, pod.requests) if pod.ask is not None else None

    def why(self, ask: PodAsk, requests: Iterable[tuple[str, int]] = ()) -> Reason | None:
        """Why no node could take these requests; None if one could."""
        amounts = dict(requests)
        asked = ask, tuple([amounts.get(resource, 0) for resource in IN_TREE])
        basis = self._stock.version, self.generation
        if self._basis != basis:
            self._basis = basis
            self._known.clear()
        known = self._known.get(asked)
        if known is None:
            known = self._known.put(asked, self._lack.of(ask) or self._too_large(*asked) or False)
        return known or None

    def _too_large(self, ask: PodAsk, needed: Sequence[int]) -> Reason | None:
        kinds = self._nodes.kinds
        if not 0 < len(kinds) <= MOST_KINDS:
            return None
        able = [kind for kind in kinds if kind.fits(ask)]
        if not able:
            if missing := next((each.profile for each in ask.containers if each.profile not in self._profiles()), ""):
                return refusals.no_match(f"MIG profile {missing}", self._stock.has_profiles(missing))
            demanded, ask = ask.containers[0].isolation, demanding(ask, "any")
            if demanded != "any" and (alike := [kind for kind in kinds if kind.fits(ask)]):
                best = max(alike, key=lambda kind: (bool(kind.isolation.memory), kind.isolation.compute))
                return refusals.no_isolation(demanded, f"{next(iter(best.nodes))} has {best.isolation}")
            if one := self._one_gpu(ask):
                return one
            several = len(ask.containers) > 1 or (ask.only_whole and ask.containers[0].gpus > 1)
            return refusals.cannot_fit(ask_words.wanted(ask) + " on one node" * several, self._nearest(ask))
        for resource, amount in zip(IN_TREE, needed, strict=True):
            best = max(able, key=lambda kind: kind.most.get(resource, 0))
            most = best.most.get(resource, 0)
            if amount > most > 0:
                nearest = f"{best.having(resource)} comes nearest with {in_words([(resource, most)])}"
                words = f"{ask_words.wanted(ask)} and {in_words([(resource, amount)])}"
                return refusals.cannot_fit(words, f"{nearest}: request at most that")
        return None

    def _profiles(self) -> set[str]:
        """The MIG profiles of the cluster, and "" for GPUs."""
        return {"", *(found.profile for found in self._stock.gpus)}

    def _one_gpu(self, ask: PodAsk) -> Reason | None:
        """If nodes with MPS have enough such GPUs for a container with parts of several, and only MPS forbids it."""
        selection = msgspec.structs.replace(ask.selection, uuids=())
        for kind in self._nodes.kinds:
            for container in ask.containers:
                alone = msgspec.structs.replace(container, gpus=1)
                forbidden = kind.books is not None and lack(kind.books.inventory, container) == ONE_GPU
                if forbidden and kind.able(alone, selection) >= container.gpus:
                    why = f"{ONE_GPU}, as on {next(iter(kind.nodes))}: request a part of one GPU"
                    return refusals.cannot_fit(ask_words.wanted(ask), why)
        return None

    # -- words

    def _nearest(self, ask: PodAsk) -> str:
        """Which limit is exceeded, which node comes nearest, and what to change."""
        selection = msgspec.structs.replace(ask.selection, uuids=())
        for container in ask.containers:
            able, best = max(((kind.able(container, selection), kind) for kind in self._nodes.kinds), key=itemgetter(0))
            if not able:
                return self._none(container, ask)
            if able < container.gpus:
                node, gpus = (
                    next(iter(best.nodes)),
                    f"{'MIG instance' if container.profile else 'GPU'}{'s' * (able > 1)}",
                )
                return f"{node} comes nearest with {able} such {gpus}: request at most {able}, or make it several pods"
        return "each of its containers would fit alone: request less, or make them several pods"

    def _none(self, container: ContainerAsk, ask: PodAsk) -> str:
        """No GPU is one of the container's."""
        if container.profile:
            return self._no_instance(container, ask)
        if container.whole:
            return f"no node serves {container.whole}"
        books = [(kind, kind.books) for kind in self._nodes.kinds if kind.books is not None]
        slices = max((each.inventory.slices_per_gpu for _, each in books), default=0)
        if container.slices > slices:
            return f"a GPU has {slices} slices: request at most {slices} of each GPU, or whole GPUs"
        every = (
            (kind, book.gpu)
            for kind, each in books
            for book in each.gpus.values()
            if book.gpu.health != IN_MIG_MODE and (container.gpus == 1 or not book.gpu.mig)
        )
        sizes = [(gpu.mem, next(iter(kind.nodes))) for kind, gpu in every if suits(ask.selection, gpu)]
        largest, node = max(sizes, default=(0, "no node"))
        mem, in_mib = self._resources.mem, _in_mib(container, ask, largest)
        most = f"write {mem}: {largest * container.gpus} or less, or spread it over more GPUs by {GPU_COUNT}"
        advice = f"for {container.mem * container.gpus} MiB, write {mem}: {in_mib}" if in_mib else most
        return f"the largest GPU has {amount_of_memory(largest, ask.unit_mib)}, on {node}: {advice}"

    def _no_instance(self, container: ContainerAsk, ask: PodAsk) -> str:
        """No instance of its profile is one of the container's."""
        selection = msgspec.structs.replace(ask.selection, profile=container.profile)
        such = [found for found in self._stock.gpus if suits(selection, found)]
        if not such:
            return f"no MIG instance {container.profile} is of a selected GPU: loosen the selection"
        largest = amount_of_memory(max(found.mem for found in such), ask.unit_mib)
        return f"an instance {container.profile} has {largest}: request less of each, or a larger profile"


def _in_mib(container: ContainerAsk, ask: PodAsk, largest: int) -> int:
    """The units to request if its amount was meant in MiB; 0 if that cannot be."""
    units = -(-container.mem // ask.unit_mib)
    return units * container.gpus if container.mem >= ask.unit_mib and units <= largest else 0
