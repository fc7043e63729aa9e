"""Sets of GPUs by their links, against brute force: shipped machines, any matrix, any occupancy, every k."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.fake import FakeSource
from protos.contract import choose, names
from protos.contract.ask import ContainerAsk, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.inventory import Link
from protos.contract.links import EXACT, PCIE_WEIGHTS, Topology
from protos.contract.selection import LINKS, Selection
from protos.contract.selection import Link as Wish
from tests.builders import an_inventory

MACHINES = ("dgx1-v100", "dgx-a100-80g", "hgx-h200", "t4x4", "a100x8-pcie", "mixed", "dgx2-v100")
KINDS = ("NV1", "NV2", "NV12", "PIX", "PXB", "NODE", "SYS", "of tomorrow")
Gpus = tuple[int, ...]
Numa = tuple[tuple[int, int], ...]


class Twin:
    """The same machine, looked up in its links one by one."""

    def __init__(self, links: Sequence[Link], numa: Numa) -> None:
        self.numa = dict(numa)
        self.weights = {frozenset(pair): 0 for pair in combinations(self.numa, 2)}
        for a, b, kind in links:
            told = 100 * int(kind[2:]) if kind.startswith("NV") else PCIE_WEIGHTS.get(kind, 0)
            self.weights[frozenset((a, b))] = max(told, self.weights[frozenset((a, b))])

    def total(self, gpus: Sequence[int]) -> int:
        return sum(self.weights[frozenset(pair)] for pair in combinations(gpus, 2))

    def near(self, gpus: Sequence[int]) -> int:
        return sum(self.numa[a] == self.numa[b] >= 0 for a, b in combinations(gpus, 2))

    def allows(self, gpus: Sequence[int], wish: Wish, local: bool) -> bool:
        pairs = list(combinations(gpus, 2))
        linked = all(self.weights[frozenset(pair)] >= 100 for pair in pairs)
        return (linked or wish != "nvlink") and (not local or all(self.numa[a] == self.numa[b] for a, b in pairs))

    def best(self, candidates: Gpus, k: int, idle: Gpus, wish: Wish, local: bool) -> Gpus | None:
        sets = (chosen for chosen in combinations(candidates, k) if self.allows(chosen, wish, local))
        return max(sets, key=lambda chosen: self.worth(chosen, idle, wish), default=None)

    def worth(self, chosen: Gpus, idle: Gpus, wish: Wish) -> tuple[int, ...]:
        left = [gpu for gpu in idle if gpu not in chosen]
        if wish == "any":
            return self.total(left), self.near(left)
        return self.total(chosen), self.total(left), self.near(chosen), self.near(left)


def machine(name: str) -> tuple[tuple[Link, ...], Numa]:
    read = FakeSource(name, "node").read()
    return read.links, tuple((gpu.index, gpu.numa) for gpu in read.gpus)


def cases(rng: random.Random, gpus: int, count: int, most: int) -> Iterator[tuple[Gpus, int, Gpus]]:
    """At most so many candidates in any order, k, and the idle GPUs."""
    for _ in range(count):
        candidates = rng.sample(range(gpus), rng.randint(1, min(gpus, most)))
        idle = rng.sample(range(gpus), rng.randint(0, gpus))
        yield tuple(candidates), rng.randint(1, len(candidates)), tuple(sorted(idle))


def compare(links: Sequence[Link], numa: Numa, seed: int, count: int, most: int = 9) -> None:
    topology, twin, rng = Topology(links, numa), Twin(links, numa), random.Random(seed)
    for candidates, k, idle in cases(rng, len(numa), count, most):
        wish, local = rng.choice(LINKS), rng.random() < 0.2
        asked = candidates, k, idle, wish, local
        assert topology.best(*asked) == twin.best(*asked), asked


@pytest.mark.parametrize("name", MACHINES)
def test_the_best_set_on_a_known_machine_is_that_of_brute_force(name: str) -> None:
    compare(*machine(name), seed=1, count=60, most=7)


@pytest.mark.long
@pytest.mark.parametrize("name", MACHINES)
def test_the_best_set_is_that_of_brute_force_thousands_of_times(name: str) -> None:
    compare(*machine(name), seed=2, count=3_000)


@pytest.mark.long
@pytest.mark.parametrize("k", range(1, 17))
def test_the_best_set_of_sixteen_is_that_of_brute_force(k: int) -> None:
    links = [(a, b, random.Random(f"{k} {a} {b}").choice(KINDS)) for a in range(16) for b in range(16) if a != b]
    numa = tuple((gpu, gpu % 3 - 1) for gpu in range(16))
    everything = tuple(range(16))
    for wish in LINKS:
        asked = everything, k, everything, wish, False
        assert Topology(links, numa).best(*asked) == Twin(links, numa).best(*asked)


@settings(max_examples=60)
@given(st.data(), st.integers(1, 8), st.randoms(use_true_random=False))
def test_the_best_set_by_a_matrix_that_differs_by_direction_is_that_of_brute_force(
    data: st.DataObject, gpus: int, rng: random.Random
) -> None:
    told = data.draw(st.sampled_from([0.5, 1.0]))
    pairs = [(a, b) for a in range(gpus) for b in range(gpus) if a != b and rng.random() < told]
    links = [(a, b, rng.choice(KINDS)) for a, b in pairs]
    numa = tuple((gpu, rng.randint(-1, 1)) for gpu in range(gpus))
    compare(links, numa, seed=rng.randrange(2**32), count=5)


def occupied(name: str, rng: random.Random) -> NodeBooks:
    """The machine with some of its GPUs held, whole or in part."""
    links, numa = machine(name)
    books = NodeBooks(an_inventory(*[40] * len(numa), links=links, numa=[node for _, node in numa]))
    for number, uuid in enumerate(books.gpus):
        if rng.random() < 0.4:
            demand = rng.choice([Demand(40, 100, True), Demand(rng.randint(1, 30), 0, False)])
            books.hold(f"other-{number}", PodAsk(containers=()), {uuid: demand})
    return books


def a_whole_ask(gpus: int, **selection: object) -> PodAsk:
    container = ContainerAsk(name="main", gpus=gpus, whole=names.WHOLE_GPU)
    return PodAsk(containers=(container,), selection=Selection(**selection))  # type: ignore[arg-type]


def taken(ask: PodAsk, books: NodeBooks) -> Gpus | None:
    choice = choose.choose(ask, books)
    return None if choice is None else tuple(share.index for share in choice.shares["main"])


@pytest.mark.parametrize("name", MACHINES)
def test_who_asks_nvlink_gets_nothing_less_and_gets_it_wherever_it_is(name: str) -> None:
    twin, rng = Twin(*machine(name)), random.Random(3)
    for _ in range(40):
        books = occupied(name, rng)
        k = rng.randint(2, min(8, len(books.gpus)))
        there = any(twin.allows(chosen, "nvlink", local=False) for chosen in combinations(books.idle(), k))
        found = taken(a_whole_ask(k, link="nvlink"), books)
        assert (found is not None) == there
        assert found is None or twin.allows(found, "nvlink", local=False)


@pytest.mark.parametrize("name", MACHINES)
def test_one_gpu_is_taken_where_it_leaves_the_most_links(name: str) -> None:
    twin, rng = Twin(*machine(name)), random.Random(4)
    for _ in range(40):
        books = occupied(name, rng)
        idle = books.idle()
        found = taken(a_whole_ask(1), books)
        expected = twin.best(idle, 1, idle, "any", local=False)
        assert found == expected


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("mixed", [False, True])
def test_the_set_of_one_model_is_the_best_of_all_such_sets(name: str, mixed: bool) -> None:
    links, numa = machine(name)
    twin, rng = Twin(links, numa), random.Random(5)
    for _ in range(40):
        models = [rng.choice(("T4", "A100", "H100")) for _ in numa]
        books = NodeBooks(an_inventory(*[40] * len(numa), links=links, numa=[n for _, n in numa], models=models))
        idle = tuple(sorted(rng.sample(range(len(numa)), rng.randint(2, min(9, len(numa))))))
        for gpu in set(range(len(numa))) - set(idle):
            books.hold(f"other-{gpu}", PodAsk(containers=()), {f"GPU-n-{gpu}": Demand(40, 100, True)})
        k, link = rng.randint(2, min(4, len(idle))), rng.choice(LINKS)
        found = taken(a_whole_ask(k, link=link, mixed=mixed), books)
        groups = [idle] if mixed else [[gpu for gpu in idle if models[gpu] == model] for model in set(models)]
        bests = [twin.best(tuple(group), k, idle, link, local=False) for group in groups]
        worths = [twin.worth(best, idle, link) for best in bests if best is not None]
        assert (found and twin.worth(found, idle, link)) == max(worths, default=None)


@given(st.integers(EXACT + 1, 40), st.data(), st.sampled_from(LINKS), st.booleans())
def test_a_set_of_many_gpus_keeps_its_promises(gpus: int, data: st.DataObject, wish: Wish, local: bool) -> None:
    island = data.draw(st.integers(1, 9))
    links = [(a, b, "NV2" if a // island == b // island else "SYS") for a, b in combinations(range(gpus), 2)]
    numa = tuple((gpu, gpu * 2 // gpus) for gpu in range(gpus))
    k = data.draw(st.integers(1, gpus))
    found = Topology(links, numa).best(tuple(range(gpus)), k, (), wish, local)
    if found is not None:
        assert len(set(found)) == k
        assert Twin(links, numa).allows(found, wish, local)
    elif wish == "nvlink":
        assert k > island or local
    else:
        assert local
        assert k > gpus // 2
