"""The books of one node in random histories, held against counting everything anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from protos.contract.allocation import Share
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import peak
from protos.contract.inventory import Inventory
from tests.builders import an_allocation, an_inventory
from tests.property.naive_books import Counts, counted, found

ASKS = (
    PodAsk(containers=(ContainerAsk(name="main", gpus=1, mem=5),)),
    PodAsk(containers=(ContainerAsk(name="main", gpus=1, mem=12, slices=30),)),
    PodAsk(containers=(ContainerAsk(name="main", gpus=1, slices=60),)),
    PodAsk(containers=(ContainerAsk(name="main", gpus=1, whole="nvidia.com/gpu"),)),
    PodAsk(containers=(ContainerAsk(name="main", gpus=1, mem=4), ContainerAsk(name="side", gpus=1, mem=9))),
)
pods = st.integers(0, 5).map(lambda number: f"p{number}")
gpus = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from((8, 16, 24)), st.sampled_from(("ok", "sick:XID 79", "gone"))),
    max_size=5,
    unique_by=lambda gpu: gpu[0],
)
deeds = st.one_of(
    st.tuples(st.just("place"), pods, st.sampled_from(ASKS)),
    st.tuples(st.just("hold"), pods, st.tuples(st.sampled_from(ASKS), st.integers(0, 4))),
    st.tuples(st.just("bind"), pods, st.tuples(st.sampled_from((4, 8, 12)), st.integers(0, 4))),
    st.tuples(st.just("release"), pods, st.none()),
    st.tuples(st.just("change"), st.sets(st.integers(0, 4)), gpus),
    st.tuples(st.just("look"), st.none(), st.none()),
)


def an_order(given: list[tuple[int, int, str]]) -> Inventory:
    """These GPUs, counted through in this order."""
    made = an_inventory(*(24 for _ in range(5)))
    shown = [
        msgspec.structs.replace(made.gpus[i], index=place, minor=place, mem=mem, health=health)
        for place, (i, mem, health) in enumerate(given)
    ]
    return msgspec.structs.replace(made, gpus=tuple(shown))


class World:
    """What was done to the books."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.soft: dict[str, Mapping[str, Demand]] = {}
        self.sure: dict[str, Mapping[str, Demand]] = {}
        self.unknown: dict[str, PodAsk] = {}

    def counted(self) -> dict[str, Counts]:
        return {
            gpu.uuid: counted(gpu, self.sure.values(), self.soft.values(), self.unknown.values())
            for gpu in self.inventory.gpus
        }


@settings(max_examples=400)
@given(st.lists(deeds, max_size=30))
def test_the_books_are_what_counting_anew_gives(done: list[tuple[str, Any, Any]]) -> None:
    start = an_inventory(16, 16, 24)
    books, world = NodeBooks(start), World(start)
    for deed, who, what in done:
        if deed == "change":
            world.inventory = an_order(what)
            books.set_inventory(world.inventory, map(str, who))
        elif deed == "look":
            before = books.signature()
            books.without(list(books.entries))
            books.overused()
            assert books.signature() == before
        else:
            world.soft.pop(who, None)
            world.sure.pop(who, None)
            world.unknown.pop(who, None)
        if deed == "place":
            world.unknown[who] = what
            books.place(who, what, None)
        elif deed == "hold":
            ask, index = what
            demands = [(c, Demand(c.mem, c.slices, bool(c.whole))) for c in ask.containers]
            world.soft[who] = {f"GPU-n-{index}": peak(demands)}
            books.hold(who, ask, world.soft[who])
        elif deed == "bind":
            mem, index = what
            ask = PodAsk(containers=(ContainerAsk(name="main", gpus=1, mem=mem),))
            share = Share(f"GPU-n-{index}", 0, mem)
            world.sure[who] = {share.uuid: Demand(mem, 0, False)}
            assert books.place(who, ask, an_allocation(main=[share]))
        elif deed == "release":
            books.release(who)
        assert found(books) == world.counted()
