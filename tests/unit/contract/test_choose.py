"""Which GPUs of a node a pod gets, case by case."""

from __future__ import annotations

import msgspec
import pytest

from protos.contract import ask_words, choose, names
from protos.contract.allocation import Share
from protos.contract.ask import Demand, PodAsk, parse
from protos.contract.books import NodeBooks
from protos.contract.misfit import misfit
from protos.contract.objects import Pod
from tests.builders import a_container, a_pod, an_allocation, an_inventory

DGX1 = [
    (0, 1, "NV1"), (0, 2, "NV1"), (0, 3, "NV2"), (0, 4, "NV2"), (1, 2, "NV2"), (1, 3, "NV1"), (1, 5, "NV2"),
    (2, 3, "NV1"), (2, 6, "NV2"), (3, 7, "NV2"), (4, 5, "NV1"), (4, 6, "NV1"), (4, 7, "NV2"), (5, 6, "NV2"),
    (5, 7, "NV1"), (6, 7, "NV1"), (0, 5, "SYS"), (0, 6, "SYS"), (0, 7, "SYS"),
]  # fmt: skip


def ask_of(pod: Pod) -> PodAsk:
    found = parse(pod, names.Resources())
    assert found is not None
    return found


def put(books: NodeBooks, uid: str, pod: Pod) -> list[str]:
    """Book the pod where it is chosen to be; returns its containers' GPUs as `container:index,…`."""
    ask = ask_of(pod)
    choice = choose.choose(ask, books)
    if choice is None:
        return []
    books.hold(uid, ask, choice.charges)
    return [f"{name}:{','.join(str(s.index) for s in given)}" for name, given in choice.shares.items()]


def test_fractions_fill_one_gpu_before_the_next() -> None:
    books = NodeBooks(an_inventory(16, 16))
    seats = [put(books, f"p{i}", a_pod(mem=5)) for i in range(7)]
    assert seats == [["main:0"]] * 3 + [["main:1"]] * 3 + [[]]


def test_spread_takes_the_emptiest_gpu() -> None:
    books = NodeBooks(an_inventory(16, 16))
    spread = {names.PLACEMENT: "spread"}
    assert [put(books, f"p{i}", a_pod(mem=5, annotations=spread)) for i in range(3)] == [
        ["main:0"],
        ["main:1"],
        ["main:0"],
    ]


def test_whole_and_fractional_never_share() -> None:
    books = NodeBooks(an_inventory(16, 16))
    assert put(books, "a", a_pod(mem=1)) == ["main:0"]
    assert put(books, "b", a_pod(whole=1)) == ["main:1"]
    assert put(books, "c", a_pod(whole=1)) == []
    assert put(books, "d", a_pod(mem=16)) == []
    assert put(books, "e", a_pod(mem=15)) == ["main:0"]


def test_slices_alone_book_their_part_of_the_memory() -> None:
    books = NodeBooks(an_inventory(15))
    assert put(books, "a", a_pod(slices=50)) == ["main:0"]
    assert books.gpus["GPU-n-0"].mem_used == 7
    assert put(books, "b", a_pod(mem=9)) == []
    assert put(books, "c", a_pod(mem=8)) == ["main:0"]


def test_memory_alone_promises_no_compute() -> None:
    books = NodeBooks(an_inventory(16))
    put(books, "a", a_pod(mem=4, slices=100))
    assert put(books, "b", a_pod(mem=4)) == ["main:0"]
    assert put(books, "c", a_pod(mem=4, slices=1)) == []


def test_gpu_count_spreads_evenly_over_different_gpus() -> None:
    books = NodeBooks(an_inventory(16, 16))
    assert put(books, "a", a_pod(mem=20, annotations={names.GPU_COUNT: "2"})) == ["main:0,1"]
    assert [book.mem_used for book in books.gpus.values()] == [10, 10]


def test_gpus_of_different_size_live_in_one_node() -> None:
    books = NodeBooks(an_inventory(16, 80))
    assert put(books, "a", a_pod(mem=24)) == ["main:1"]
    assert put(books, "b", a_pod(mem=10)) == ["main:1"]
    assert put(books, "c", a_pod(whole=1)) == ["main:0"]


def test_two_whole_gpus_are_an_nvlink_pair_with_the_most_links() -> None:
    books = NodeBooks(an_inventory(*[16] * 8, links=DGX1))
    books.hold("other", ask_of(a_pod(whole=1)), {"GPU-n-0": Demand(16, 100, True)})
    assert put(books, "a", a_pod(whole=2)) == ["main:1,2"]


def test_four_whole_gpus_are_the_best_linked_quad() -> None:
    books = NodeBooks(an_inventory(*[16] * 8, links=DGX1))
    assert put(books, "a", a_pod(whole=4)) in (["main:0,1,2,3"], ["main:0,3,4,7"], ["main:1,2,5,6"])


def test_a_required_nvlink_is_a_hard_promise() -> None:
    books = NodeBooks(an_inventory(16, 16, 16, links=[(0, 1, "PIX"), (0, 2, "SYS"), (1, 2, "NV4")]))
    required = {names.LINK: "nvlink"}
    assert put(books, "a", a_pod(whole=2, annotations=required)) == ["main:1,2"]
    assert put(books, "b", a_pod(whole=2, annotations=required)) == []


SWITCHED = [(a, b, "NV12") for a in range(8) for b in range(a)]
TWO_SOCKETS = [0, 0, 0, 0, 1, 1, 1, 1]
PAIRS = [(a, b, "NV4" if a // 2 == b // 2 else "SYS") for a in range(6) for b in range(a)]


def hold(books: NodeBooks, *gpus: int, whole: bool = True) -> None:
    """Other pods hold these GPUs, whole or a little of them."""
    for gpu in gpus:
        demand = Demand(16, 100, True) if whole else Demand(2, 0, False)
        books.hold(f"other-{gpu}", ask_of(a_pod(mem=2)), {f"GPU-n-{gpu}": demand})


def test_of_sets_that_are_linked_alike_the_one_that_leaves_most_links_is_taken() -> None:
    books = NodeBooks(an_inventory(*[16] * 6, links=[(a, b, "NV4") for a, b, _ in PAIRS if a // 3 == b // 3]))
    hold(books, 0)
    assert put(books, "a", a_pod(whole=2)) == ["main:1,2"]


def test_behind_a_switch_gpus_of_one_numa_node_are_taken() -> None:
    books = NodeBooks(an_inventory(*[16] * 8, links=SWITCHED, numa=TWO_SOCKETS))
    hold(books, 1, 2, 3)
    assert put(books, "a", a_pod(whole=2)) == ["main:4,5"]
    assert put(books, "b", a_pod(whole=1)) == ["main:0"]


def test_a_single_gpu_is_one_whose_partner_is_taken() -> None:
    books = NodeBooks(an_inventory(*[16] * 6, links=PAIRS))
    hold(books, 3)
    assert put(books, "a", a_pod(whole=1)) == ["main:2"]
    assert put(books, "b", a_pod(whole=2)) == ["main:0,1"]


def test_an_idle_gpu_is_opened_for_a_part_where_that_breaks_the_fewest_links() -> None:
    books = NodeBooks(an_inventory(*[16] * 6, links=PAIRS))
    hold(books, 5)
    assert put(books, "a", a_pod(mem=4)) == ["main:4"]
    assert put(books, "b", a_pod(mem=4, annotations={names.PLACEMENT: "spread"})) == ["main:0"]


def test_a_shared_gpu_goes_before_an_idle_one_whatever_its_links() -> None:
    books = NodeBooks(an_inventory(*[16] * 6, links=PAIRS))
    hold(books, 0, whole=False)
    hold(books, 3)
    assert put(books, "a", a_pod(mem=4)) == ["main:0"]


def test_containers_with_a_gpu_each_break_the_fewest_links_too() -> None:
    books = NodeBooks(an_inventory(*[16] * 6, links=PAIRS))
    hold(books, 3)
    assert put(books, "a", a_pod(containers=[a_container("a", whole=1), a_container("b", whole=1)])) == ["a:2", "b:0"]


def test_who_cares_for_no_link_leaves_them_to_others() -> None:
    books = NodeBooks(an_inventory(*[16] * 6, links=PAIRS))
    hold(books, 1, 3)
    assert put(books, "a", a_pod(whole=2, annotations={names.LINK: "any"})) == ["main:0,2"]
    assert put(books, "b", a_pod(whole=2)) == ["main:4,5"]


def test_gpus_that_must_be_on_one_numa_node_are() -> None:
    books = NodeBooks(an_inventory(*[16] * 8, links=SWITCHED, numa=TWO_SOCKETS))
    hold(books, 0, 4, 5)
    three = ask_of(a_pod(whole=3))
    local = msgspec.structs.replace(three, selection=msgspec.structs.replace(three.selection, numa_local=True))
    choice = choose.choose(local, books)
    assert choice is not None
    assert [share.index for share in choice.shares["main"]] == [1, 2, 3]
    hold(books, 1)
    assert choose.choose(three, books) is not None
    assert choose.choose(local, books) is None


def test_spread_parts_go_to_the_emptiest_gpus_behind_a_switch() -> None:
    books = NodeBooks(an_inventory(*[16] * 8, links=SWITCHED, numa=[0] * 8))
    hold(books, 0, 1, whole=False)
    spread = {names.GPU_COUNT: "2", names.PLACEMENT: "spread"}
    assert put(books, "a", a_pod(mem=4, annotations=spread)) == ["main:2,3"]
    assert put(books, "b", a_pod(mem=4, annotations={names.GPU_COUNT: "2"})) == ["main:0,1"]


def test_containers_of_one_pod_share_a_gpu_and_its_charge_is_their_sum() -> None:
    books = NodeBooks(an_inventory(16, 16))
    both = a_pod(containers=[a_container("a", mem=6), a_container("b", mem=6)])
    assert put(books, "p", both) == ["a:0", "b:0"]
    assert books.gpus["GPU-n-0"].mem_used == 12


def test_containers_that_do_not_fit_one_gpu_take_two() -> None:
    books = NodeBooks(an_inventory(16, 16))
    assert put(books, "p", a_pod(containers=[a_container("a", mem=10), a_container("b", mem=10)])) == ["a:0", "b:1"]


def test_backtracking_finds_the_only_way() -> None:
    books = NodeBooks(an_inventory(16, 16))
    put(books, "x", a_pod(mem=4))
    three = [a_container("a", mem=7), a_container("b", mem=5), a_container("c", mem=16)]
    assert put(books, "p", a_pod(containers=three)) == ["a:0", "b:0", "c:1"]


def test_an_init_container_runs_on_its_pods_gpu_and_only_the_peak_is_charged() -> None:
    books = NodeBooks(an_inventory(16, 16))
    pod = a_pod(init=[a_container("prepare", mem=8)], containers=[a_container("main", mem=6)])
    assert put(books, "p", pod) == ["prepare:0", "main:0"]
    assert books.gpus["GPU-n-0"].mem_used == 8


def test_a_pod_goes_where_its_init_container_has_room_too() -> None:
    books = NodeBooks(an_inventory(16, 16))
    put(books, "x", a_pod(mem=10))
    pod = a_pod(init=[a_container("prepare", mem=8)], containers=[a_container("main", mem=4)])
    assert put(books, "p", pod) == ["prepare:1", "main:1"]


def test_an_init_container_that_asks_more_gpus_than_the_rest_may_go_beyond_them() -> None:
    books = NodeBooks(an_inventory(16, 16))
    pod = a_pod(init=[a_container("prepare", whole=2)], containers=[a_container("main", mem=4)])
    assert put(books, "p", pod) == ["prepare:0,1", "main:0"]


def test_a_sidecar_counts_beside_the_apps_and_under_later_inits() -> None:
    books = NodeBooks(an_inventory(40))
    side = a_container("side", mem=4, restartPolicy="Always")
    pod = a_pod(init=[side, a_container("prepare", mem=10)], containers=[a_container("main", mem=6)])
    put(books, "p", pod)
    assert books.gpus["GPU-n-0"].mem_used == 14


def test_replicas_are_time_slices_on_different_gpus() -> None:
    books = NodeBooks(an_inventory(16, 16, replicas={names.WHOLE_GPU: 4}))
    assert put(books, "a", a_pod(whole=2)) == ["main:0,1"]
    assert [book.slices_used for book in books.gpus.values()] == [25, 25]
    assert put(books, "b", a_pod(mem=12, slices=75)) == ["main:0"]


def test_the_renamed_replica_is_never_a_whole_gpu() -> None:
    shared = a_pod(containers=[a_container("main", limits={names.SHARED_GPU: "1"})])
    assert put(NodeBooks(an_inventory(16)), "a", shared) == []
    assert put(NodeBooks(an_inventory(16, replicas={names.SHARED_GPU: 2})), "a", shared) == ["main:0"]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({names.GPU_UUID: "GPU-n-1"}, ["main:1"]),
        ({names.GPU_UUID: "!GPU-n-0"}, ["main:1"]),
        ({names.GPU_MODEL: "v100*,t4"}, ["main:0"]),
        ({names.GPU_MODEL: "A100*"}, []),
        ({names.MIN_GPU_MEMORY: "20Gi"}, ["main:1"]),
        ({names.MIN_CLOCK_MHZ: "1"}, []),
        ({names.MIN_COMPUTE_CAPABILITY: "7.0"}, []),
    ],
)
def test_annotations_select_gpus(annotations: dict[str, str], expected: list[str]) -> None:
    assert put(NodeBooks(an_inventory(16, 24)), "p", a_pod(mem=1, annotations=annotations)) == expected


def test_cordoned_sick_and_leaving_take_nothing_new() -> None:
    assert put(NodeBooks(an_inventory(16, 16), cordoned=["0"]), "p", a_pod(mem=1)) == ["main:1"]
    assert put(NodeBooks(an_inventory(16), cordoned=["GPU-n-0"]), "p", a_pod(mem=1)) == []
    assert put(NodeBooks(an_inventory(16, state="leaving")), "p", a_pod(mem=1)) == []


def test_a_pod_nobody_knows_the_gpu_of_is_charged_wherever_it_could_be() -> None:
    books = NodeBooks(an_inventory(16, 16, 16))
    whole = an_allocation(main=[Share("GPU-n-2", 2, 16, 100, whole=True)])
    assert books.place("whole", ask_of(a_pod(whole=1)), whole)
    assert not books.place("lost", ask_of(a_pod(mem=10)), None)
    assert [book.mem_used for book in books.gpus.values()] == [10, 10, 16]
    assert books.unplaced() == ("lost",)
    assert not books.overused()
    there = an_allocation(main=[Share("GPU-n-1", 1, 10)])
    assert books.place("lost", ask_of(a_pod(mem=10)), there)
    assert [book.mem_used for book in books.gpus.values()] == [0, 10, 16]


def test_an_allocation_is_charged_by_the_limits_whatever_it_claims() -> None:
    books = NodeBooks(an_inventory(16))
    assert books.place("p", ask_of(a_pod(mem=10)), an_allocation(main=[Share("GPU-n-0", 0, 1)]))
    assert books.gpus["GPU-n-0"].mem_used == 10


def test_an_edited_gpu_count_does_not_lessen_the_charge() -> None:
    books = NodeBooks(an_inventory(16, 16))
    edited = ask_of(a_pod(mem=10, annotations={names.GPU_COUNT: "10"}))
    assert books.place("p", edited, an_allocation(main=[Share("GPU-n-0", 0, 10)]))
    assert [book.mem_used for book in books.gpus.values()] == [10, 0]


def test_over_use_found_in_the_world_is_shown_not_hidden() -> None:
    books = NodeBooks(an_inventory(16))
    for uid in ("a", "b"):
        books.place(uid, ask_of(a_pod(mem=10)), an_allocation(main=[Share("GPU-n-0", 0, 10)]))
    assert [book.gpu.uuid for book in books.overused()] == ["GPU-n-0"]
    assert books.gpus["GPU-n-0"].mem_free == 0


def test_a_gpu_that_goes_and_comes_back_still_has_its_pod() -> None:
    books = NodeBooks(an_inventory(16, 16))
    put(books, "p", a_pod(mem=10, annotations={names.GPU_UUID: "GPU-n-1"}))
    books.set_inventory(an_inventory(16))
    assert [book.mem_used for book in books.gpus.values()] == [0]
    books.set_inventory(an_inventory(16, 16))
    assert [book.mem_used for book in books.gpus.values()] == [0, 10]


def test_the_misfit_names_the_freest_gpu() -> None:
    books = NodeBooks(an_inventory(16, 24))
    assert misfit(ask_of(a_pod(mem=30)), books) == "freest: GPU 1 with 24 GiB"
    assert ask_words.wanted(ask_of(a_pod(mem=30))) == "30 GiB on one GPU"


MIX = {names.MIXED_MODELS: "allow"}


def test_the_gpus_of_a_container_are_of_one_model_unless_the_pod_allows_several() -> None:
    books = NodeBooks(an_inventory(40, 16, models=["A100", "T4"]))
    pair = {names.GPU_COUNT: "2"}
    assert put(books, "whole", a_pod(whole=2)) == put(books, "parts", a_pod(mem=8, annotations=pair)) == []
    assert put(books, "parts", a_pod(mem=8, annotations=pair | MIX)) == ["main:0,1"]
    books.release("parts")
    assert put(books, "whole", a_pod(whole=2, annotations=MIX)) == ["main:0,1"]


def test_containers_of_one_pod_may_be_on_gpus_of_different_models() -> None:
    books = NodeBooks(an_inventory(40, 16, models=["A100", "T4"]))
    pod = a_pod(containers=[a_container("a", whole=1), a_container("b", whole=1)])
    assert sorted(put(books, "p", pod)) == ["a:1", "b:0"]


def test_of_the_models_that_fit_the_best_linked_set_is_taken() -> None:
    links = [(0, 1, "PIX"), (0, 2, "NV4"), (1, 3, "NV4"), (2, 3, "NV2")]
    books = NodeBooks(an_inventory(16, 16, 40, 40, links=links, models=["T4", "T4", "A100", "A100"]))
    assert put(books, "a", a_pod(whole=2)) == ["main:2,3"]
    assert put(books, "b", a_pod(whole=2)) == ["main:0,1"]


def test_a_model_whose_best_set_is_in_another_containers_way_gives_way_to_the_next_model() -> None:
    books = NodeBooks(an_inventory(10, 10, 20, 20, models=["T4", "T4", "A100", "A100"]))
    pair = a_container("pair", mem=2 * 8)
    rest = [a_container(name, mem=2 * amount) for name, amount in (("x", 5), ("y", 5), ("z", 6))]
    seats = put(books, "p", a_pod(containers=[pair, *rest], annotations={names.GPU_COUNT: "2"}))
    assert len(seats) == 4
    assert all(seat.endswith((":0,1", ":2,3")) for seat in seats)


def test_a_required_nvlink_is_looked_for_among_gpus_of_one_model() -> None:
    links = [(0, 1, "NV4"), (2, 3, "NV2")]
    books = NodeBooks(an_inventory(*[16] * 4, links=links, models=["T4", "A100", "A100", "A100"]))
    required = {names.LINK: "nvlink"}
    assert put(books, "a", a_pod(whole=2, annotations=required)) == ["main:2,3"]
    assert put(books, "b", a_pod(whole=2, annotations=required)) == []


def test_the_misfit_tells_that_only_gpus_of_several_models_are_free() -> None:
    books = NodeBooks(an_inventory(40, 16, models=["A100", "T4"]))
    sentence = "has enough free only on GPUs of several models, which gangshare.io/mixed-models: allow permits"
    assert misfit(ask_of(a_pod(whole=2)), books) == sentence
    assert misfit(ask_of(a_pod(whole=3)), books) == "2 of 2 GPUs wholly free"
    assert misfit(ask_of(a_pod(whole=3, annotations=MIX)), books) == "2 of 2 GPUs wholly free"


def test_an_absurd_number_of_gpus_is_refused_like_any() -> None:
    books = NodeBooks(an_inventory(16, 16))
    for link in ("any", "prefer", "nvlink"):
        assert put(books, "a", a_pod(whole=2**62, annotations={names.LINK: link})) == []


def test_containers_that_fit_only_otherwise_than_by_size_are_seated_by_going_back() -> None:
    books = NodeBooks(an_inventory(10, 10))
    sizes = {"a": 4, "b": 4, "c": 3, "d": 3, "e": 3, "f": 3}
    pod = a_pod(containers=[a_container(name, mem=mem) for name, mem in sizes.items()])
    seats = put(books, "p", pod)
    assert len(seats) == 6
    assert [book.mem_used for book in books.gpus.values()] == [10, 10]


def test_the_search_among_many_gpus_ends_and_finds_the_two_islands() -> None:
    island = [range(8), range(8, 16)]
    links = [(a, b, "NV2" if any({a, b} <= set(g) for g in island) else "SYS") for a in range(16) for b in range(a)]
    books = NodeBooks(an_inventory(*[16] * 16, links=links))
    books.hold("other", ask_of(a_pod(whole=1)), {"GPU-n-3": Demand(16, 100, True)})
    assert put(books, "a", a_pod(whole=8)) == ["main:8,9,10,11,12,13,14,15"]
    assert put(books, "b", a_pod(whole=7)) == ["main:0,1,2,4,5,6,7"]
