"""Which MIG instances a pod gets, and that an instance has one holder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from protos.contract import choose, cordon, inventory, names
from protos.contract.allocation import Share
from protos.contract.ask import AskError, ContainerAsk, Demand, PodAsk, held, parse
from protos.contract.books import NodeBooks
from protos.contract.inventory import Gpu, Inventory
from protos.contract.isolation import Isolation
from protos.contract.mig import shown
from protos.contract.misfit import misfit
from protos.contract.objects import Pod
from protos.contract.selection import Selection
from tests.builders import a_container, a_pod, an_allocation, an_inventory, cut

SMALL, LARGE = "1g.10gb", "3g.40gb"
OF_PROFILE = {names.MIG_PROFILE: SMALL}


def mig(name: str, count: int = 1, **fields: Any) -> dict[str, Any]:
    return a_container("main", limits={f"nvidia.com/mig-{name}": str(count)}, **fields)


def books_of(
    instances: Mapping[int, Sequence[str]],
    *mems: int,
    single: bool = False,
    cordoned: Sequence[str] = (),
    **fields: Any,
) -> NodeBooks:
    return NodeBooks(cut(an_inventory(*mems, **fields), instances, single=single), cordoned)


def ask_of(pod: Pod) -> PodAsk:
    found = parse(pod, names.Resources())
    assert found is not None
    return found


def put(books: NodeBooks, uid: str, pod: Pod) -> str:
    """Book the pod where it is chosen to be; returns its GPUs as people see them."""
    ask = ask_of(pod)
    choice = choose.choose(ask, books)
    if choice is None:
        return ""
    books.hold(uid, ask, choice.charges)
    return ",".join(shown(share.index) for given in choice.shares.values() for share in given)


def test_one_pod_holds_an_instance_and_the_next_gets_another() -> None:
    books = books_of({0: [SMALL, SMALL]}, 79)
    pods = [put(books, f"p{i}", a_pod(containers=[mig(SMALL)])) for i in range(3)]
    assert pods == ["0:0", "0:1", ""]
    assert misfit(ask_of(a_pod(containers=[mig(SMALL)])), books) == "0 of 2 such MIG instances free"


def test_parts_of_two_pods_never_share_an_instance() -> None:
    books = books_of({0: [SMALL]}, 79)
    assert [put(books, f"p{i}", a_pod(mem=2)) for i in range(2)] == ["0:0", ""]


def test_a_gpu_in_mig_mode_takes_nothing_itself() -> None:
    books = books_of({0: []}, 79)
    assert [put(books, "p", pod) for pod in (a_pod(mem=1), a_pod(whole=1))] == ["", ""]


def test_the_smallest_instance_that_satisfies_is_chosen() -> None:
    books = books_of({0: [LARGE, SMALL]}, 79)
    assert put(books, "a", a_pod(mem=9)) == "0:1"
    assert put(books, "b", a_pod(mem=9)) == "0:0"
    assert put(books, "c", a_pod(mem=9)) == ""


@pytest.mark.parametrize(("mem", "slices", "where"), [(9, 14, "0:1"), (10, 0, "0:0"), (0, 15, "0:0"), (39, 43, "")])
def test_an_instance_satisfies_memory_and_time_slices(mem: int, slices: int, where: str) -> None:
    assert put(books_of({0: [LARGE, SMALL]}, 79), "a", a_pod(mem=mem, slices=slices)) == where


def test_a_shared_gpu_comes_before_an_instance_and_that_before_an_idle_gpu() -> None:
    books = books_of({0: [SMALL]}, 79, 10, 10)
    assert put(books, "first", a_pod(mem=4)) == "0:0"
    assert put(books, "second", a_pod(mem=4)) == "1"
    books.release("first")
    assert put(books, "third", a_pod(mem=4)) == "1"
    assert put(books, "fourth", a_pod(mem=4)) == "0:0"
    assert put(books, "fifth", a_pod(mem=4)) == "2"


def test_spreading_takes_idle_gpus_first_then_the_smallest_instance() -> None:
    books, spread = books_of({0: [LARGE, SMALL]}, 79, 10), {names.PLACEMENT: "spread"}
    seats = [put(books, f"p{i}", a_pod(mem=2, annotations=spread)) for i in range(4)]
    assert seats == ["1", "0:1", "0:0", "1"]


def test_a_part_of_several_gpus_gets_no_instances_unless_it_names_a_profile() -> None:
    two = {names.GPU_COUNT: "2"}
    books = books_of({0: [SMALL, SMALL]}, 79)
    assert put(books, "a", a_pod(mem=8, annotations=two)) == ""
    assert put(books, "b", a_pod(mem=8, annotations={**two, **OF_PROFILE})) == "0:0,0:1"


@pytest.mark.parametrize(
    ("pod", "where"),
    [
        (a_pod(containers=[mig(SMALL, 2)]), "0:1,0:2"),
        (a_pod(containers=[mig(SMALL, 3)]), ""),
        (a_pod(containers=[mig("2g.20gb")]), ""),
        (a_pod(mem=4, annotations=OF_PROFILE), "0:1"),
        (a_pod(slices=10, annotations=OF_PROFILE), "0:1"),
        (a_pod(whole=2, annotations=OF_PROFILE), "0:1,0:2"),
        (a_pod(whole=1), "1"),
        (a_pod(whole=2), ""),
    ],
)
def test_a_profile_is_met_by_its_instances_only(pod: Pod, where: str) -> None:
    assert put(books_of({0: [LARGE, SMALL, SMALL]}, 79, 79), "p", pod) == where


def test_an_init_container_uses_the_instance_of_its_pod_and_a_sidecar_needs_another() -> None:
    init, main = a_container("init", mem=4), a_container("main", mem=8)
    assert put(books_of({0: [SMALL]}, 79), "p", a_pod(containers=[main], init=[init])) == "0:0,0:0"
    sidecar = {**init, "restartPolicy": "Always"}
    assert put(books_of({0: [SMALL]}, 79), "p", a_pod(containers=[main], init=[sidecar])) == ""
    assert put(books_of({0: [SMALL, SMALL]}, 79), "p", a_pod(containers=[main], init=[sidecar])) == "0:1,0:0"


def test_whole_gpus_get_instances_where_the_strategy_is_single() -> None:
    books = books_of({0: [SMALL] * 3}, 79, single=True)
    assert [put(books, f"p{i}", a_pod(whole=count)) for i, count in enumerate((2, 1, 1))] == ["0:0,0:1", "0:2", ""]
    books = books_of({0: [SMALL] * 3}, 79)
    assert put(books, "p", a_pod(whole=1)) == ""


def test_gpus_and_instances_are_never_mixed_in_a_container() -> None:
    books = books_of({0: [SMALL]}, 79, 79, single=True)
    assert put(books, "p", a_pod(whole=2)) == ""


def test_an_instance_meets_every_demand_for_isolation() -> None:
    pod = a_pod(mem=4, annotations={names.ISOLATION: "compute"})
    books = books_of({0: [SMALL]}, 79, 79)
    assert put(books, "p", pod) == "0:0"
    assert books.stands("p", books.entries["p"].charges)
    assert put(books, "q", pod) == ""
    assert put(books_of({}, 79), "p", pod) == ""
    proved = books_of({0: [SMALL]}, 79, 79, isolation=Isolation("mps", "mps"))
    assert [put(proved, f"p{i}", pod) for i in range(2)] == ["0:0", "1"]


@pytest.mark.parametrize(
    ("marks", "left"),
    [("0", ["1:0"]), ("GPU-n-0", ["1:0"]), ("0:1", ["0:0", "1:0"]), ("MIG-GPU-n-1-0", ["0:0", "0:1"]), ("256", None)],
)
def test_a_cordon_covers_the_instances_of_its_gpu_or_one(marks: str, left: list[str] | None) -> None:
    books = books_of({0: [SMALL, SMALL], 1: [SMALL]}, 79, 79, cordoned=[marks])
    assert (cordon.unreadable(marks, books.inventory) is None) is (left is not None)
    left = ["0:0", "0:1", "1:0"] if left is None else left
    assert [where for i in range(3) if (where := put(books, f"p{i}", a_pod(containers=[mig(SMALL)])))] == left


def test_an_instance_that_is_gone_stays_charged_until_its_pod_ends() -> None:
    books = books_of({0: [SMALL]}, 79)
    pod = a_pod(mem=4)
    share = Share("MIG-GPU-n-0-0", 256, 9, 14, True)
    assert books.place("uid-p", ask_of(pod), an_allocation(main=[share]))
    assert books.gpus[share.uuid].wholes == 1
    books.set_inventory(an_inventory(79))
    assert books.entries["uid-p"].charges == {share.uuid: Demand(9, 14, True)}
    assert put(books, "other", a_pod(mem=79)) == "0"
    books.set_inventory(cut(an_inventory(79), {0: [SMALL]}))
    assert put(books, "third", a_pod(containers=[mig(SMALL)])) == ""


def test_a_pod_placed_when_its_instance_is_gone_holds_all_of_it_when_it_is_back() -> None:
    books = NodeBooks(an_inventory(79))
    share = Share("MIG-GPU-n-0-0", 256, 9, 14, True)
    assert books.place("uid-p", ask_of(a_pod(mem=4)), an_allocation(main=[share]))
    assert books.entries["uid-p"].charges == {share.uuid: Demand(9, 14, True)}


def test_a_pod_with_unknown_gpus_is_charged_on_all_instances_that_it_may_have() -> None:
    books = books_of({0: [LARGE, SMALL, SMALL]}, 79)
    books.place("uid-p", ask_of(a_pod(containers=[mig(SMALL)])), None)
    assert sorted(books.entries["uid-p"].charges) == ["MIG-GPU-n-0-1", "MIG-GPU-n-0-2"]
    assert put(books, "q", a_pod(containers=[mig(SMALL)])) == ""


def test_an_instance_without_its_gpu_is_used_and_one_of_a_gpu_not_in_mig_mode_is_refused() -> None:
    alone = Gpu(index=256, uuid="MIG-a", mem=9, mig=SMALL)
    found = Inventory(v=1, unit_mib=1024, slices_per_gpu=100, gpus=(alone,))
    assert put(NodeBooks(found), "p", a_pod(mem=4)) == "0:0"
    for health, fine in (("mig", True), ("sick:xid 79", True), ("gone", True), ("ok", False)):
        gpus = (Gpu(index=0, uuid="GPU-a", mem=79, health=health), alone)
        text = inventory.encode(msgspec.structs.replace(found, gpus=())).replace('"gpus":[]', f'"gpus":{as_json(gpus)}')
        if fine:
            assert inventory.decode(text) is not None
        else:
            with pytest.raises(ValueError, match="is of GPU 0, which is not in MIG mode"):
                inventory.decode(text)


def as_json(gpus: tuple[Gpu, ...]) -> str:
    return msgspec.json.encode(gpus).decode()


def test_what_an_instance_has_is_no_more_than_the_books_say_whatever_the_inventory() -> None:
    huge = Gpu(index=256, uuid="MIG-a", mem=0, mig="7g.9999gb")
    books = NodeBooks(Inventory(v=1, unit_mib=1024, slices_per_gpu=1, gpus=(huge,)))
    assert put(books, "p", a_pod(mem=1)) == ""
    assert put(books, "p", a_pod(containers=[mig("7g.9999gb")])) == "0:0"
    assert put(books, "q", a_pod(containers=[mig("7g.9999gb")])) == ""


@pytest.mark.parametrize(
    ("pod", "code", "sentence"),
    [
        (
            a_pod(containers=[mig("foo")]),
            "AskMalformed",
            "container main asks nvidia.com/mig-foo: expected a MIG profile, like nvidia.com/mig-1g.10gb",
        ),
        (
            a_pod(containers=[mig(SMALL, whole=1)]),
            "AskMixed",
            "container main asks nvidia.com/gpu and nvidia.com/mig-1g.10gb: whole GPUs, parts or MIG instances of one "
            "profile",
        ),
        (
            a_pod(
                containers=[a_container("main", limits={"nvidia.com/mig-1g.10gb": "1", "nvidia.com/mig-2g.20gb": "1"})]
            ),
            "AskMixed",
            "container main asks nvidia.com/mig-1g.10gb and nvidia.com/mig-2g.20gb: whole GPUs, parts or MIG instances "
            "of one profile",
        ),
        (
            a_pod(containers=[mig("2g.20gb")], annotations=OF_PROFILE),
            "AskMixed",
            "container main asks nvidia.com/mig-2g.20gb, and gangshare.io/mig-profile is 1g.10gb: name one of them",
        ),
        (
            a_pod(mem=11, annotations=OF_PROFILE),
            "AskTooLarge",
            "container main asks gangshare.io/gpu-mem 11 of an instance 1g.10gb, which has less: ask less than 10, or "
            "take a larger profile",
        ),
        (
            a_pod(mem=4, annotations={names.MIG_PROFILE: "small"}),
            "AskMalformed",
            "gangshare.io/mig-profile is 'small': expected a MIG profile like 1g.10gb",
        ),
    ],
)
def test_what_cannot_be_asked(pod: Pod, code: str, sentence: str) -> None:
    with pytest.raises(AskError) as caught:
        parse(pod, names.Resources())
    assert (caught.value.reason.code, caught.value.reason.sentence) == (code, sentence)


def test_a_class_with_a_profile_is_narrowed_by_none_other() -> None:
    of_class = Selection(profile=SMALL)
    found = parse(a_pod(mem=4), names.Resources(), of_class)
    assert found is not None
    assert found.containers[0].profile == SMALL
    assert not found.selection.selective
    with pytest.raises(AskError, match=r"expected 1g\.10gb, as its GpuClass says"):
        parse(a_pod(mem=4, annotations={names.MIG_PROFILE: LARGE}), names.Resources(), of_class)


def test_no_instances_are_no_request_and_a_bound_pod_with_several_profiles_is_charged_the_first() -> None:
    none = a_pod(containers=[mig(SMALL, 0)])
    assert parse(none, names.Resources()) is None
    with pytest.raises(AskError, match=r"asks nvidia.com/mig-1g\.10gb 0, which is no GPU"):
        parse(a_pod(containers=[a_container("main", limits={"nvidia.com/mig-1g.10gb": "0k"})]), names.Resources())
    both = {"nvidia.com/mig-1g.10gb": "2", "nvidia.com/mig-2g.20gb": "1"}
    found = held(a_pod(containers=[a_container("main", limits=both)]), names.Resources())
    expected = ContainerAsk(name="main", gpus=2, whole="nvidia.com/mig-1g.10gb", profile=SMALL)
    assert found is not None
    assert found.containers == (expected,)
