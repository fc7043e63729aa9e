"""Books of one node."""

from __future__ import annotations

from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.selection import Selection
from tests.builders import an_inventory

TEN = PodAsk(containers=(ContainerAsk(name="main", gpus=1, mem=10),))


def test_what_is_tried_on_a_copy_is_not_seen_in_the_books() -> None:
    books = NodeBooks(an_inventory(40, 40), cordoned=["1"])
    books.hold("here", TEN, {"GPU-n-0": Demand(10, 0, False)})
    books.place("somewhere", TEN, None)
    before = books.signature()
    twin = books.copy()
    assert twin.signature() == before
    assert twin.unplaced() == ("somewhere",)
    twin.hold("tried", TEN, {"GPU-n-0": Demand(25, 0, False)})
    twin.release("here")
    assert twin.signature() != before
    assert books.signature() == before
    assert set(books.entries) == {"here", "somewhere"}
    assert books.entries["somewhere"].charges == {uuid: Demand(10, 0, False) for uuid in ("GPU-n-0", "GPU-n-1")}
    assert books.release("here")


def test_what_happens_to_the_books_is_not_seen_in_a_copy() -> None:
    books = NodeBooks(an_inventory(40, 40))
    books.place("somewhere", TEN, None)
    twin = books.copy()
    before = twin.signature()
    books.set_inventory(an_inventory(80), cordoned=["0"])
    books.hold("new", TEN, {"GPU-n-0": Demand(10, 0, False)})
    assert twin.signature() == before
    assert [book.gpu.mem for book in twin.eligible(Selection())] == [40, 40]
    assert books.eligible(Selection()) == ()


def test_a_copy_offers_its_own_gpus() -> None:
    books = NodeBooks(an_inventory(40, 40))
    assert len(books.eligible(Selection())) == 2
    twin = books.copy()
    twin.hold("tried", TEN, {"GPU-n-1": Demand(10, 0, False)})
    assert [book.mem_free for book in twin.eligible(Selection())] == [40, 30]
    assert [book.mem_free for book in books.eligible(Selection())] == [40, 40]
