"""The GPUs of a node as placement needs them: computed once for all nodes with equal GPUs in equal use."""

from __future__ import annotations

import msgspec

from extender.engine.placement.ranking import Room, of_room
from extender.engine.placement.usable import GPU, Rests
from protos.contract import choose
from protos.contract.ask import NOTHING, Demand
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook
from protos.contract.inventory import Instance
from protos.contract.mig import SLICES
from protos.contract.signature import Kind


class Gpus(msgspec.Struct, frozen=True, eq=False):
    """What is free on them."""

    kind: Kind
    free: Rests
    total: int
    """The sum of `free`."""
    in_use: bool
    order: tuple[tuple[int, int, int], ...]
    """Free units, slices and thousandths of each GPU that may take something new, the preferred one first."""
    idle: int
    """How many of those are idle: they come last."""
    size: int
    """Units of the first GPU."""
    per_gpu: int
    """Slices of each GPU."""
    short: int
    """The standing of the node for a part of a GPU that does not fit."""
    short_of_whole: int
    """The same for whole GPUs."""


def gpus(books: NodeBooks) -> Gpus:
    """What is free on a node, which has at least one GPU."""
    every, per_gpu = list(books.gpus.values()), books.inventory.slices_per_gpu
    free = tuple([rest(book) for book in every])
    able = [(choose.preference(book), i) for i, book in enumerate(every) if book.offered and not book.wholes]
    order = tuple(
        (every[i].gpu.mem - every[i].mem_used, per_gpu - every[i].slices_used, free[i]) for _, i in sorted(able)
    )
    offered = [book for book in every if book.offered]
    return Gpus(
        books.kind,
        free,
        sum(free),
        any(book.sharers or book.wholes for book in every),
        order,
        sum(book.idle for book in offered),
        every[0].gpu.mem,
        per_gpu,
        of_room(room(offered)),
        of_room(room(offered, only_whole=True)),
    )


def room(books: list[GpuBook] | tuple[GpuBook, ...], *, only_whole: bool = False) -> Room:
    """The most that is free on these GPUs, for the standing of a node that falls short; `only_whole`: in whole GPUs."""
    whole = sum([not (book.wholes or book.sharers) for book in books])
    if only_whole:
        return -whole, 0, 0
    shared = [book for book in books if not book.wholes]
    mem = max([book.mem_free for book in shared], default=-1)
    return -mem, -max([book.slices_free for book in shared], default=-1), -whole


def rest(book: GpuBook, taken: Demand = NOTHING) -> int:
    """What is free of one GPU beside `taken`, in thousandths of a GPU.

    Of a GPU that is cut on demand it is what no instance has; possible instances have nothing of their own.
    """
    if book.divisible:
        return GPU * max(0, SLICES - book.cut) // SLICES
    if isinstance(book.gpu, Instance):
        return 0
    if book.wholes or taken.whole or not book.offered:
        return 0
    if book.gpu.mig:
        return 0 if book.sharers else GPU * book.gpu.slices // SLICES
    size, per_gpu = book.gpu.mem, book.slices_per_gpu
    return thousandths(book.mem_free - taken.mem, book.slices_free - taken.slices, size, per_gpu)


def thousandths(mem: int, slices: int, size: int, per_gpu: int) -> int:
    """Units and slices as a part of a GPU that has `size` units and `per_gpu` slices."""
    return max(0, min(mem * GPU // max(1, size), slices * GPU // per_gpu))
