"""Codecs, node books and set search against arbitrary input and dumb twins."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from protos.contract import allocation, choose, codec, inventory
from protos.contract.allocation import Allocation, Group, Share
from protos.contract.ask import ContainerAsk, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.selection import Selection
from tests.builders import an_inventory

words = st.text(min_size=1, max_size=12)
small = st.integers(min_value=0, max_value=2**31 - 1)
indexes = st.integers(min_value=0, max_value=65_535)
shares = st.builds(Share, uuid=words, index=indexes, mem=small, slices=small, whole=st.booleans())
allocations = st.builds(
    Allocation,
    v=st.just(1),
    unit_mib=st.integers(1, 2**20),
    slices_per_gpu=st.integers(1, 1000),
    containers=st.dictionaries(words, st.lists(shares, max_size=4).map(tuple), max_size=3),
    group=st.none() | st.builds(Group, key=words, epoch=small, size=st.integers(1, 1000)),
)


@given(allocations)
def test_an_allocation_survives_the_wire(value: Allocation) -> None:
    assert allocation.decode(allocation.encode(value)) == value


@given(st.lists(st.integers(0, 200), max_size=8), st.sampled_from(["ready", "leaving"]))
def test_an_inventory_survives_the_wire(mems: list[int], state: str) -> None:
    value = an_inventory(*mems, state=state, links=[(0, 1, "NV4")], replicas={"nvidia.com/gpu": 4})
    assert inventory.decode(inventory.encode(value)) == value


@given(st.text())
def test_no_text_breaks_the_codec(text: str) -> None:
    with contextlib.suppress(codec.ContractError):
        allocation.decode(text)


fractions = st.builds(
    ContainerAsk, name=st.just("c"), gpus=st.integers(1, 3), mem=st.integers(1, 20), slices=st.integers(0, 60)
)
wholes = st.builds(ContainerAsk, name=st.just("c"), gpus=st.integers(1, 3), whole=st.just("nvidia.com/gpu"))
pods = st.builds(
    PodAsk,
    containers=st.lists(st.one_of(fractions, wholes), min_size=1, max_size=3).map(
        lambda asks: tuple(
            ContainerAsk(name=f"c{i}", gpus=a.gpus, mem=a.mem, slices=a.slices, whole=a.whole)
            for i, a in enumerate(asks)
        )
    ),
    selection=st.builds(Selection, spread=st.booleans()),
)
steps = st.lists(st.tuples(st.integers(0, 9), pods), max_size=30)


@settings(max_examples=150)
@given(st.lists(st.integers(5, 40), min_size=1, max_size=4), steps)
def test_what_is_chosen_never_takes_a_gpu_past_what_it_has(mems: list[int], script: list[tuple[int, PodAsk]]) -> None:
    books = NodeBooks(an_inventory(*mems))
    held: dict[str, dict[str, tuple[int, int, bool]]] = {}
    for slot, ask in script:
        uid = f"u{slot}"
        if uid in held:
            assert books.release(uid)
            del held[uid]
        elif (choice := choose.choose(ask, books)) is not None:
            books.hold(uid, ask, choice.charges)
            held[uid] = {uuid: (demand.mem, demand.slices, demand.whole) for uuid, demand in choice.charges.items()}
            assert choose.choose(ask, NodeBooks(an_inventory(*mems))) is not None
            assert books.charges(ask, choice.shares) == choice.charges
            assert all(len({s.uuid for s in given}) == c.gpus for c, given in _seated(ask, choice))
        for uuid, book in books.gpus.items():
            here = [charges[uuid] for charges in held.values() if uuid in charges]
            assert (book.mem_used, book.slices_used) == (sum(h[0] for h in here), sum(h[1] for h in here))
            assert book.mem_used <= book.gpu.mem
            assert book.slices_used <= 100
            assert len(here) <= 1 or not any(h[2] for h in here)


def _seated(ask: PodAsk, choice: choose.Choice) -> list[tuple[ContainerAsk, tuple[Share, ...]]]:
    return [(container, choice.shares[container.name]) for container in ask.containers]
