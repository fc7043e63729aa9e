"""GPUs of which MIG instances are made on demand, held against trying every place on bare memory slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from extender.engine.placement.gpus import gpus, rest
from protos.contract import allocation, choose, mig
from protos.contract.allocation import Allocation
from protos.contract.ask import ContainerAsk, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.inventory import Inventory, Possible
from protos.contract.selection import Selection
from tests.builders import H100_PROFILES, an_inventory, divisible

PROFILES = {each.profile: each for each in H100_PROFILES}
Held = tuple[str, str, int]
"""GPU, profile and start."""


@st.composite
def nodes(draw: st.DrawFn) -> Inventory:
    count = draw(st.integers(1, 3))
    profiles = draw(st.lists(st.sampled_from(H100_PROFILES), min_size=1, unique=True))
    cut = draw(st.sets(st.sampled_from(range(count)), min_size=1))
    return divisible(an_inventory(*[79] * count), sorted(cut), profiles)


NAMED = st.builds(
    lambda gpus, name: ContainerAsk(name="", gpus=gpus, whole=mig.PREFIX + name.replace("+", "."), profile=name),
    st.sampled_from((1, 1, 1, 2, 3)), st.sampled_from(sorted(PROFILES)),
)  # fmt: skip
AMOUNTS = st.builds(lambda mem: ContainerAsk(name="", gpus=1, mem=mem), st.integers(1, 79))


def of(*containers: ContainerAsk, spread: bool = False) -> PodAsk:
    named = tuple(msgspec.structs.replace(each, name=f"c{i}") for i, each in enumerate(containers))
    return PodAsk(containers=named, selection=Selection(spread=spread))


asks = st.builds(of, st.one_of(NAMED, NAMED, AMOUNTS), spread=st.booleans())
pods = st.builds(
    lambda first, more: of(first, *more), st.one_of(NAMED, AMOUNTS), st.lists(st.one_of(NAMED, AMOUNTS), max_size=2)
)


def possible(inventory: Inventory) -> dict[str, Possible]:
    return {each.profile: each for layout in inventory.layouts for each in layout.profiles}


def free(inventory: Inventory, held: Sequence[Held], profile: str) -> list[Held]:
    """Every place at which the driver would make an instance of this profile, by bare arithmetic."""
    known, found = possible(inventory), []
    if profile not in known:
        return []
    for gpu in (inventory.gpus[index].uuid for layout in inventory.layouts for index in layout.gpus):
        taken = {s for on, name, at in held if on == gpu for s in range(at, at + PROFILES[name].size)}
        so_far = sum((on, name) == (gpu, profile) for on, name, _ in held)
        for start in known[profile].starts:
            if so_far < known[profile].most and not taken & set(range(start, start + known[profile].size)):
                found.append((gpu, profile, start))
    return found


def made(books: NodeBooks) -> list[Held]:
    """The instances on demand that pods have."""
    found = [mig.place(uuid) for entry in books.entries.values() for uuid in entry.charges]
    return [(place.gpu, place.profile, place.start) for place in found if place is not None]


def check(books: NodeBooks) -> None:
    """No two instances overlap, and what is blocked is what the driver would refuse."""
    held = made(books)
    assert not books.overused()
    for gpu in {on for on, _, _ in held}:
        slices = Counter(s for on, name, at in held if on == gpu for s in range(at, at + PROFILES[name].size))
        assert max(slices.values()) == 1
        assert books.gpus[gpu].cut == sum(book_slices(name) for on, name, _ in held if on == gpu)
    able = {(place.gpu, place.profile, place.start) for place in idle(books)}
    assert able == {each for name in possible(books.inventory) for each in free(books.inventory, held, name)}


def book_slices(name: str) -> int:
    profile = mig.profile(name)
    assert profile is not None
    return profile.slices


def idle(books: NodeBooks) -> list[mig.Place]:
    found = (mig.place(uuid) for uuid, book in books.gpus.items() if book.idle)
    return [place for place in found if place is not None]


@given(nodes(), st.lists(st.tuples(pods, st.booleans()), max_size=12))
def test_pods_get_what_the_driver_can_make_and_nothing_else(drawn: Inventory, every: list[tuple[PodAsk, bool]]) -> None:
    books = NodeBooks(drawn)
    for number, (ask, ends) in enumerate(every):
        held, choice = made(books), choose.choose(ask, books)
        first = ask.containers[0]
        if len(ask.containers) == 1 and first.profile:
            places = free(drawn, held, first.profile)
            once = first.profile in possible(drawn) and possible(drawn)[first.profile].most == 1
            able = len({gpu for gpu, _, _ in places}) if once else len(places)
            assert (choice is not None) == (able >= first.gpus)
        if choice is None:
            continue
        books.hold(f"p{number}", ask, choice.charges)
        check(books)
        if ends:
            books.release(f"p{number}")
            assert sorted(made(books)) == sorted(held)
            check(books)


@given(nodes(), st.lists(asks, max_size=8))
def test_books_that_are_read_anew_are_the_same(drawn: Inventory, every: list[PodAsk]) -> None:
    books, texts = NodeBooks(drawn), dict[str, tuple[PodAsk, str]]()
    for number, ask in enumerate(every):
        choice = choose.choose(ask, books)
        if choice is not None:
            text = allocation.encode(Allocation(1, drawn.unit_mib, drawn.slices_per_gpu, choice.shares))
            assert text is not None
            texts[f"p{number}"] = ask, text
            books.place(f"p{number}", ask, allocation.decode(text))
    again = NodeBooks(drawn)
    for uid, (ask, text) in reversed(texts.items()):
        assert again.place(uid, ask, allocation.decode(text))
    for uuid, book in books.gpus.items():
        twin = again.gpus[uuid]
        assert (twin.wholes, twin.blocked, twin.cut) == (book.wholes, book.blocked, book.cut)
    assert again.signature() == books.signature()
    shorter = divisible(an_inventory(*[79] * len(drawn.gpus)), drawn.layouts[0].gpus, H100_PROFILES[:1])
    again.set_inventory(shorter)  # profiles are withdrawn while pods have instances of them
    again.set_inventory(drawn)
    assert again.signature() == books.signature()


@given(nodes(), st.lists(asks, max_size=6), NAMED)
def test_a_choice_leaves_the_most_possible(drawn: Inventory, every: list[PodAsk], last: ContainerAsk) -> None:
    books = NodeBooks(drawn)
    for number, ask in enumerate(every):
        if (choice := choose.choose(ask, books)) is not None:
            books.hold(f"p{number}", ask, choice.charges)
    one = of(msgspec.structs.replace(last, gpus=1))
    choice = choose.choose(one, books)
    if choice is None:
        return
    held = made(books)

    def left(place: Held) -> int:
        after = [*held, place]
        return sum(book_slices(name) * len(free(drawn, after, name)) for name in possible(drawn))

    (uuid,) = choice.charges
    place = mig.place(uuid)
    assert place is not None
    best = max(left(each) for each in free(drawn, held, last.profile))
    assert left((place.gpu, place.profile, place.start)) == best


@given(nodes(), st.lists(asks, max_size=8))
def test_a_divisible_gpu_counts_once(drawn: Inventory, every: list[PodAsk]) -> None:
    books = NodeBooks(drawn)
    for number, ask in enumerate(every):
        if (choice := choose.choose(ask, books)) is not None:
            books.hold(f"p{number}", ask, choice.charges)
    cut = {drawn.gpus[index].uuid for layout in drawn.layouts for index in layout.gpus}
    found = gpus(books)
    assert len(found.free) == len(books.gpus)
    for (uuid, book), part in zip(books.gpus.items(), found.free, strict=True):
        if uuid in cut:
            used = sum(book_slices(name) for on, name, _ in made(books) if on == uuid)
            assert part == rest(book) == 1000 * (7 - used) // 7
        elif mig.place(uuid) is not None:
            assert part == 0
