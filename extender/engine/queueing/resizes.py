"""Books more GPU memory for running pods, or says why not, on the GPUs that they have: nothing else moves.

What is booked for a pod never falls before the pod ends: its limit may be lowered later than the answer, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from extender.engine.queueing.queues import Queues
from extender.engine.queueing.quota import Quota
from extender.engine.queueing.usage import part_of
from extender.engine.state.ledger import Ledger
from extender.engine.state.outbox import Outbox
from extender.engine.state.pod_state import Change, PodState
from extender.engine.types.effects import Report, SetAnnotation
from protos.contract import codec, names, resize
from protos.contract.ask import Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.objects import Pod
from protos.contract.queue import CLASS, GPUS
from protos.contract.reason import Reason
from protos.contract.resize import Resized, Wish

REFUSED = "ResizeRefused"


class Resizes:
    """The wishes of users for other amounts."""

    def __init__(self, ledger: Ledger, queues: Queues, quota: Quota, outbox: Outbox) -> None:
        self._ledger, self._queues, self._quota, self._outbox = ledger, queues, quota, outbox

    def see(self, pod: Pod, state: PodState) -> None:
        """Answer what the pod's annotation wants, once."""
        text = pod.metadata.annotations.get(names.RESIZE)
        if text is None or state.state != "bound" or text == state.wish:
            return
        state.wish = text
        try:
            wanted = resize.wish.decode(text)
        except codec.ContractError as error:
            self._outbox.put(Report(state.ref, Reason(REFUSED, "the wish for GPU memory cannot be read", str(error))))
            return
        if wanted is not None and (state.resized is None or state.resized.id != wanted.id):
            self._answer(pod, state, wanted)

    def _answer(self, pod: Pod, state: PodState, wanted: Wish) -> None:
        had = state.resized or Resized(codec.VERSION, wanted.id)
        most = {**had.booked}
        for name, amount in wanted.containers.items():
            most[name] = max(amount, most.get(name, 0))
        why = self._obstacle(state, wanted, most)
        if why is None:
            limits = {**had.containers, **wanted.containers}
            answer = Resized(codec.VERSION, wanted.id, limits, most)
        else:
            answer = Resized(codec.VERSION, wanted.id, had.containers, had.booked, str(why)[:1024])
        state.superseded = pod.metadata.annotations.get(names.RESIZED)
        state.resized = answer
        if why is None:
            self._ledger.bind(state, state.node, Change.FOUND)
        else:
            self._outbox.put(Report(state.ref, why))
        self._outbox.put(SetAnnotation(state.ref, names.RESIZED, resize.resized.encode(answer), ""))

    def _obstacle(self, state: PodState, wanted: Wish, most: Mapping[str, int]) -> Reason | None:
        """Why the wish cannot be granted, None if it can."""
        node = self._ledger.nodes.get(state.node)
        books = node.books if node is not None else None
        entry = books.entries.get(state.ref.uid) if books is not None else None
        if state.ask is None or state.allocation is None or books is None or entry is None or not entry.placed:
            return Reason(REFUSED, "the GPUs of the pod are not known now", "try again later")
        if (unfit := _unfit(state.ask, wanted)) is not None:
            return Reason(REFUSED, unfit)
        if books.inventory.enforced.memory != "driver":
            sentence = "the node of the pod does not limit memory by NVIDIA's driver"
            return Reason(REFUSED, sentence, books.inventory.enforced.why)
        charges = books.charges(resize.booked(state.ask, most), state.allocation.containers)
        if charges is None:
            return Reason(REFUSED, "the pod's GPUs do not match what it requests")
        full = next(_full(books, entry.charges, charges), None)
        return Reason(REFUSED, "its GPUs have no room for that", full) if full else self._queue(state, books, charges)

    def _queue(self, state: PodState, books: NodeBooks, charges: Mapping[str, Demand]) -> Reason | None:
        """Why the pod's queue may not use so much more."""
        before = books.entries[state.ref.uid].charges
        gpus = books.gpus
        more = sum(
            part_of(now, gpus.get(uuid)) - part_of(before[uuid], gpus.get(uuid)) for uuid, now in charges.items()
        )
        local_queue = self._queues.of(state.ref.uid)
        if more <= 0 or local_queue is None:
            return None
        of_class = ((CLASS + state.gpu_class, more),) if state.gpu_class else ()
        short = self._quota.shortage(local_queue, ((GPUS, more), *of_class))
        return Reason(REFUSED, short.sentence, short.numbers) if short is not None else None


def _unfit(ask: PodAsk, wanted: Wish) -> str | None:
    """Why the wish is not for this pod."""
    asks = {each.name: each for each in ask.containers}
    for name in wanted.containers:
        found = asks.get(name)
        if found is None:
            return f"container {name} requests no GPUs"
        if found.whole or not found.mem:
            return f"container {name} requests no amount of GPU memory: only such parts can be resized"
    return None


def _full(books: NodeBooks, before: Mapping[str, Demand], charges: Mapping[str, Demand]) -> Iterator[str]:
    """What each GPU lacks."""
    for uuid, now in charges.items():
        book, had = books.gpus.get(uuid), before.get(uuid, Demand(0, 0, False)).mem
        if book is None:
            yield f"GPU {uuid} has left the node"
        elif now.mem > had and book.mem_used - had + now.mem > book.gpu.mem:
            room = max(0, book.gpu.mem - book.mem_used)
            yield f"GPU {book.gpu.index} has room for {room} more units, {now.mem - had} are wanted"
