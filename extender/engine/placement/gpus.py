"""The GPUs of a node as placement looks at them: worked out once for all nodes that are alike in them."""

from __future__ import annotations

import msgspec

from extender.engine.placement.ranking import Room, of_room
from extender.engine.placement.usable import GPU, Rests
from protos.contract import choose
from protos.contract.ask import NOTHING, Demand
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook
from protos.contract.signature import Kind


class Gpus(msgspec.Struct, frozen=True, eq=False):
    """What is free on them."""

    kind: Kind
    free: Rests
    total: int
    """Their sum."""
    in_use: bool
    """Whether anybody has any."""
    order: tuple[tuple[int, int, int], ...]
    """Units, slices and thousandths free of each GPU that may take something new; as a pod prefers them."""
    idle: int
    """How many of those are idle: they stand last."""
    size: int
    """Units of the first one."""
    per_gpu: int
    """Slices of each."""
    short: int
    """How the node stands for a part of a GPU that does not fit."""
    short_of_whole: int
    """The same for whole GPUs."""


def gpus(books: NodeBooks) -> Gpus:
    """What is free there now. There is at least one GPU."""
    every, per_gpu = list(books.gpus.values()), books.inventory.slices_per_gpu
    free = rests(books)
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
    """How near these GPUs come; of those without the whole GPUs that are asked, only how many are whole counts."""
    whole = sum([not (book.wholes or book.sharers) for book in books])
    if only_whole:
        return -whole, 0, 0
    shared = [book for book in books if not book.wholes]
    mem = max([book.mem_free for book in shared], default=-1)
    return -mem, -max([book.slices_free for book in shared], default=-1), -whole


def rests(books: NodeBooks) -> Rests:
    """What is free of each GPU."""
    per_gpu = books.inventory.slices_per_gpu
    return tuple([rest(book, per_gpu) for book in books.gpus.values()])


def rest(book: GpuBook, per_gpu: int, taken: Demand = NOTHING) -> int:
    """What is free of one GPU beside this."""
    if book.wholes or taken.whole or not book.offered:
        return 0
    return thousandths(book.mem_free - taken.mem, book.slices_free - taken.slices, book.gpu.mem, per_gpu)


def thousandths(mem: int, slices: int, size: int, per_gpu: int) -> int:
    """So many units and slices, of so many of a GPU."""
    return max(0, min(mem * GPU // max(1, size), slices * GPU // per_gpu))
