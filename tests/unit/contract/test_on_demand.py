"""MIG instances that are made on demand, as entries of a node's books."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protos.contract import choose, codec, inventory, mig, names
from protos.contract.ask import PodAsk, parse
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook
from protos.contract.inventory import Gpu, Inventory, Layout, Possible
from protos.contract.misfit import misfit
from protos.contract.objects import Pod
from tests.builders import H100_PROFILES, a_container, a_pod, an_inventory, divisible

SMALL, MIDDLE, LARGE = (f"nvidia.com/mig-{name}" for name in ("1g.10gb", "3g.40gb", "7g.80gb"))


def of(*resources: str, mem: int = 0, **annotations: str) -> PodAsk:
    containers = [a_container(f"c{i}", limits={name: "1"}) for i, name in enumerate(resources)]
    pod: Pod = a_pod(containers=containers) if containers else a_pod(mem=mem, annotations=annotations)
    found = parse(pod, names.Resources())
    assert found is not None
    return found


def put(books: NodeBooks, uid: str, ask: PodAsk) -> str:
    """Book a pod; returns what it got, as people see it."""
    choice = choose.choose(ask, books)
    if choice is None:
        return misfit(ask, books)
    books.hold(uid, ask, choice.charges)
    return ", ".join(mig.shown(share.index) for shares in choice.shares.values() for share in shares)


def gpu(books: NodeBooks) -> GpuBook:
    """GPU 0."""
    return next(iter(books.gpus.values()))


def test_small_instances_leave_room_for_large_ones() -> None:
    books = NodeBooks(divisible(an_inventory(79), [0]))
    assert put(books, "a", of(SMALL)) == "0@6"
    assert put(books, "b", of(MIDDLE)) == "0@0-3"
    assert put(books, "c", of(MIDDLE)) == "0 of 2 such MIG instances free"
    assert put(books, "d", of(SMALL)) in ("0@4", "0@5")
    assert put(books, "e", of(LARGE)) == "0 of 1 such MIG instances free"
    books.release("b")
    assert gpu(books).cut == 2
    books.release("a")
    books.release("d")
    assert put(books, "e", of(LARGE)) == "0@0-7"


def test_a_started_gpu_is_filled_before_the_next() -> None:
    books = NodeBooks(divisible(an_inventory(79, 79), [0, 1]))
    got = [put(books, str(i), of(SMALL)) for i in range(8)]
    assert sorted(got[:7]) == [f"0@{start}" for start in range(7)]
    assert got[7] == "1@6"


def test_a_pod_can_have_instances_that_go_together() -> None:
    books = NodeBooks(divisible(an_inventory(79), [0]))
    assert put(books, "a", of(MIDDLE, MIDDLE, SMALL)) == "9 of 9 such MIG instances free"
    assert put(books, "a", of(MIDDLE, SMALL, SMALL)) == "0@4-7, 0@0, 0@1"


def test_a_profile_of_which_a_gpu_has_one_is_given_once() -> None:
    books = NodeBooks(divisible(an_inventory(79), [0]))
    media = "nvidia.com/mig-1g.10gb.me"
    assert put(books, "a", of(media)).startswith("0@")
    assert put(books, "b", of(media)) == "0 of 1 such MIG instances free"
    assert put(books, "c", of(SMALL)).startswith("0@")


def test_an_amount_gets_the_smallest_instance_before_an_idle_gpu() -> None:
    books = NodeBooks(divisible(an_inventory(79, 79), [0]))
    assert put(books, "a", of(mem=8)) == "0@6"
    assert put(books, "b", of(mem=15)) == "0@4-5"
    assert put(books, "c", of(mem=60)) == "1"
    assert put(books, "d", of(mem=5)) == "1", "a GPU that is shared comes first"


def test_an_instance_of_a_profile_that_is_no_longer_offered_still_blocks() -> None:
    whole = divisible(an_inventory(79), [0])
    books = NodeBooks(whole)
    assert put(books, "a", of(MIDDLE)) == "0@4-7"
    books.set_inventory(divisible(an_inventory(79), [0], H100_PROFILES[:1]))
    assert {mig.shown(book.gpu.index) for book in books.gpus.values() if book.idle} == {"0@0", "0@1", "0@2", "0@3"}
    assert gpu(books).cut == 3


def test_a_gpu_that_is_sick_or_cordoned_makes_nothing() -> None:
    found = divisible(an_inventory(79, 79), [0, 1])
    sick = msgspec.structs.replace(found.gpus[0], health="sick:xid-79")
    books = NodeBooks(msgspec.structs.replace(found, gpus=(sick, found.gpus[1])), ["1"])
    assert not any(book.offered or book.divisible for book in books.gpus.values())
    assert put(books, "a", of(SMALL)).startswith("none of")


H100 = Layout((0,), H100_PROFILES)


@pytest.mark.parametrize(
    ("layouts", "why"),
    [
        ([Layout((1,), H100_PROFILES)], "GPU 1 in migLayouts"),
        ([H100, H100], "GPU 0 in migLayouts"),
        ([Layout((0,), (Possible("9z", 1, 1, (0,), 1),))], "'9z' at"),
        ([Layout((0,), (Possible("3g.40gb", 1, 4, (0, 5), 2),))], "ascending starts of 4 memory slices of 8"),
        ([Layout((0,), (Possible("1g.10gb", 1, 1, (2, 1), 2),))], "ascending starts"),
        ([Layout((0,), (Possible("1g.10gb", 1, 1, (1, 1), 2),))], "ascending starts"),
    ],
)
def test_layouts_that_cannot_be_are_refused(layouts: list[Layout], why: str) -> None:
    gpu = Gpu(index=0, uuid="GPU-a", mem=79, health="mig")
    with pytest.raises(ValueError, match="migLayouts") as refused:
        Inventory(v=1, unit_mib=1024, slices_per_gpu=100, gpus=(gpu,), mig_layouts=tuple(layouts))
    assert why in str(refused.value)


def test_a_gpu_that_is_not_in_mig_mode_has_no_layout() -> None:
    healthy = Gpu(index=0, uuid="GPU-a", mem=79)
    with pytest.raises(ValueError, match="expected a GPU of this node in MIG mode"):
        Inventory(v=1, unit_mib=1024, slices_per_gpu=100, gpus=(healthy,), mig_layouts=(H100,))


def test_the_places_of_a_node_have_a_bound() -> None:
    many = tuple(Possible(f"1g.{n}gb", 1, 1, tuple(range(8)), 7) for n in range(1, 10))
    with pytest.raises(ValueError, match="places of MIG instances that can be made on a node: 1152"):
        divisible(an_inventory(*[79] * 16), range(16), many)


def test_layouts_are_written_only_where_there_are_some() -> None:
    text = inventory.encode(divisible(an_inventory(79), [0]))
    assert text is not None
    assert inventory.decode(text) == divisible(an_inventory(79), [0])
    assert "migLayouts" not in str(inventory.encode(an_inventory(79)))


HOSTILE: dict[str, Any] = {
    "a start past the last slice": {"starts": [8]},
    "no start": {"starts": []},
    "a size of nothing": {"size": 0},
    "a size beyond the GPU": {"size": 9},
    "a number of instances beyond the slices": {"most": 9},
    "too many starts": {"starts": [0] * 9},
}


@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_layout_is_refused_with_a_sentence(fields: dict[str, Any]) -> None:
    good = {"profile": "1g.10gb", "mem": 9, "size": 1, "starts": [0], "most": 1}

    def text(profile: dict[str, Any]) -> str:
        gpu = {"index": 0, "uuid": "GPU-a", "mem": 79, "health": "mig"}
        layouts = [{"gpus": [0], "profiles": [profile]}]
        document = {"v": 1, "unitMiB": 1024, "slicesPerGpu": 100, "gpus": [gpu], "migLayouts": layouts}
        return msgspec.json.encode(document).decode()

    assert inventory.decode(text(good))
    with pytest.raises(codec.ContractError):
        inventory.decode(text({**good, **fields}))
