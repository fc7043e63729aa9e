"""Why a request does not fit on a node now, with the numbers of that node."""

from __future__ import annotations

import msgspec

from protos.contract import names
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks
from protos.contract.choose import alike_only, choose
from protos.contract.inventory import Instance
from protos.contract.mig import shown
from protos.contract.on_demand import at_once
from protos.contract.quantity import amount_of_memory
from protos.contract.served import lack


def misfit(ask: PodAsk, books: NodeBooks) -> str:
    """The reason why the ask does not fit on this node, with numbers: `freest: GPU 3 with 16 GiB`."""
    if books.inventory.state != "ready":
        return "its plugin is leaving"
    profiles = {container.profile for container in ask.containers if container.profile}
    if lacking := profiles.difference(book.gpu.profile for book in books.gpus.values()):
        return f"has no MIG instance {min(lacking)}"
    some = (books.demand(container, book.gpu) for container in ask.containers for book in books.gpus.values())
    if any(lack(books.inventory, container) for container in ask.containers) and not any(some):
        return f"with {books.inventory.enforced}"
    if alike_only(ask, books) and choose(_mixing(ask), books) is not None:
        return f"has enough free only on GPUs of several models, which {names.MIXED_MODELS}: allow permits"
    eligible = books.eligible(ask.selection)
    if not eligible:
        return f"none of {len(books.gpus)} GPUs is healthy and selected"
    if profiles:
        such = [book for book in eligible if book.gpu.profile in profiles]
        made = at_once(book.gpu for book in such if isinstance(book.gpu, Instance))
        able = at_once(book.gpu for book in such if isinstance(book.gpu, Instance) and book.idle)
        existing = [book for book in such if not isinstance(book.gpu, Instance)]
        free = sum(not book.wholes for book in existing) + len(able)
        return f"{free} of {len(existing) + len(made)} such MIG instances free"
    gpus = [book for book in eligible if not book.gpu.mig or books.inventory.single or not ask.only_whole]
    if ask.only_whole:
        free = sum(not (book.sharers or book.wholes) for book in gpus)
        return f"{free} of {len(gpus)} GPUs wholly free"
    unit_mib = books.inventory.unit_mib
    freest = max(eligible, key=lambda book: (0 if book.wholes else book.mem_free, -book.gpu.index))
    mem = 0 if freest.wholes else freest.mem_free
    slices = 0 if freest.wholes else freest.slices_free
    return f"freest: GPU {shown(freest.gpu.index)} with {amount_of_memory(mem, unit_mib)}" + (
        f" and {slices} slices" if any(c.slices or c.whole for c in ask.containers) else ""
    )


def _mixing(ask: PodAsk) -> PodAsk:
    return msgspec.structs.replace(ask, selection=msgspec.structs.replace(ask.selection, mixed=True))
