"""What the stock counts is what one finds by looking at every GPU, whatever happened."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from extender.engine.state.stock import Stock, kind
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.inventory import Gpu, Inventory
from protos.contract.selection import Selection, matches, suits
from tests.builders import cut

PROFILES = ("1g.10gb", "2g.20gb")
MODELS = ("T4", "V100", "A100")
ASK = PodAsk(containers=(ContainerAsk(name="main", gpus=1, mem=1),))


@st.composite
def inventories(draw: st.DrawFn, node: str) -> Inventory:
    gpus: tuple[Gpu, ...] = tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{node}-{index}",
            mem=16,
            mem_mib=draw(st.sampled_from((16384, 32768))),
            model=draw(st.sampled_from(MODELS)),
            health=draw(st.sampled_from(("ok", "ok", "sick:xid-79"))),
        )
        for index in range(draw(st.integers(0, 3)))
    )
    found = Inventory(v=1, unit_mib=1024, slices_per_gpu=100, gpus=gpus)
    cuts = st.dictionaries(st.sampled_from(range(len(gpus) or 1)), st.lists(st.sampled_from(PROFILES), max_size=3))
    return cut(found, {index: profiles for index, profiles in draw(cuts).items() if index < len(gpus)})


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[str, Inventory | None]]:
    """Nodes that come, change and go."""
    names = draw(st.lists(st.sampled_from("abc"), max_size=8))
    return [(name, draw(st.none() | inventories(name))) for name in names]


SELECTIONS = st.builds(
    Selection,
    models=st.sampled_from([(), ("t*",), ("!t4",), ("V100", "A100")]),
    min_mem_mib=st.sampled_from([0, 20000]),
    profile=st.sampled_from(["", "", "1g.10gb"]),
    uuids=st.sampled_from([(), ("gpu-a-0",), ("GPU-b-*",), ("!GPU-a-*",)]),
)


@given(happenings(), SELECTIONS, st.sets(st.sampled_from(["GPU-a-0", "GPU-b-1", "GPU-c-2"])), st.integers(1, 3))
def test_it_agrees_with_a_look_at_every_gpu(
    happened: list[tuple[str, Inventory | None]], wanted: Selection, held: set[str], most: int
) -> None:
    stock, there = Stock(), dict[str, NodeBooks]()
    for node, found in happened:
        stock.put(node, found)
        there.pop(node, None)
        if found is not None:
            there[node] = NodeBooks(found)
            for gpu in found.gpus:
                if gpu.uuid in held:
                    there[node].hold(f"uid-{gpu.uuid}", ASK, {gpu.uuid: Demand(1, 0, False)})
        stock.recount(there.get, most)
    for node in there:
        stock.changed(node)
    stock.recount(there.get, len(there) + len(happened))

    every = [
        (node, book)
        for node, books in there.items()
        for book in books.gpus.values()
        if book.gpu.health != "mig"  # its instances count instead
    ]
    plain = msgspec.structs.replace(wanted, uuids=())
    for books in there.values():
        accepted = [b for b in books.gpus.values() if suits(wanted, b.gpu) and matches(wanted.uuids, b.gpu.uuid)]
        assert books.eligible(wanted) == tuple(book for book in accepted if book.offered)
    matching = [(node, book) for node, book in every if suits(plain, book.gpu)]
    free = [book for _, book in matching if book.gpu.health == "ok" and book.gpu.uuid not in held]
    assert stock.matching(wanted) == (len(matching), len(free), len({node for node, _ in matching}))
    assert stock.accepted(wanted) is any(
        suits(wanted, book.gpu) and matches(wanted.uuids, book.gpu.uuid) for _, book in every
    )
    assert stock.amount(wanted) == sum(book.gpu.slices for _, book in matching)
    assert stock.gpus == Counter(kind(book.gpu) for _, book in every)
    assert sum(nodes for _, nodes in stock.kinds()) == len({(node, kind(book.gpu)) for node, book in every})
