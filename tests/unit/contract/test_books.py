"""Books of one node."""

from __future__ import annotations

import weakref

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


def test_what_is_equally_taken_has_one_signature_and_it_goes_with_those_who_have_it() -> None:
    books, others = NodeBooks(an_inventory(40, 40)), NodeBooks(an_inventory(40, 40))
    assert books.signature() is others.signature()
    former = []
    for taken in range(1, 30):
        books.hold("pod", TEN, {"GPU-n-0": Demand(taken, 0, False)})
        former.append(weakref.ref(books.signature()))
    assert [signature() is not None for signature in former] == [False] * 28 + [True]


def test_a_copy_offers_its_own_gpus() -> None:
    books = NodeBooks(an_inventory(40, 40))
    assert len(books.eligible(Selection())) == 2
    twin = books.copy()
    twin.hold("tried", TEN, {"GPU-n-1": Demand(10, 0, False)})
    assert [book.mem_free for book in twin.eligible(Selection())] == [40, 30]
    assert [book.mem_free for book in books.eligible(Selection())] == [40, 40]


# -- pods of which nobody says where they are, while the node changes

WHOLE = PodAsk(containers=(ContainerAsk(name="main", gpus=1, whole="nvidia.com/gpu"),))


def test_a_node_that_changes_is_charged_once_for_a_pod_that_is_somewhere_on_it() -> None:
    books = NodeBooks(an_inventory(16))
    books.place("somewhere", TEN, None)
    for marks in (["0"], [], ["0"], []):
        books.set_inventory(an_inventory(16), cordoned=marks)
        assert [(book.mem_used, book.sharers) for book in books.gpus.values()] == [(10, 1)]
    assert not books.gpus["GPU-n-0"].fits(Demand(10, 0, False))


def test_a_node_whose_gpus_stay_as_they_are_keeps_its_books() -> None:
    """Its labels change more often than its GPUs, and thousands of nodes may change at once."""
    inventory = an_inventory(16, 16)
    books = NodeBooks(inventory, ["0"])
    books.hold("a", TEN, {"GPU-n-1": Demand(10, 0, False)})
    before = list(books.gpus.values())
    books.set_inventory(inventory, ["0"])
    assert all(map(lambda old, new: old is new, before, books.gpus.values()))
    books.set_inventory(inventory, ["1"])
    assert [(book.cordoned, book.mem_used) for book in books.gpus.values()] == [(False, 0), (True, 10)]


def test_a_whole_gpu_that_somebody_may_hold_is_free_again_when_he_has_gone() -> None:
    books = NodeBooks(an_inventory(16, 16))
    books.place("somewhere", WHOLE, None)
    books.set_inventory(an_inventory(16, 16, 24))
    assert [book.wholes for book in books.gpus.values()] == [1, 1, 1]
    books.release("somewhere")
    assert [(book.wholes, book.idle) for book in books.gpus.values()] == [(0, True)] * 3
