"""What a pod demands for its parts of GPUs, and where it is met."""

from __future__ import annotations

import itertools

import pytest

from protos.contract import ask, inventory, names
from protos.contract.ask import AskError, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.inventory import Gpu, Inventory
from protos.contract.isolation import DEMANDED, PROMISED, Demanded, Isolation, stricter
from protos.contract.names import DEFAULT_RESOURCES
from protos.contract.selection import ANYTHING, Selection
from tests.builders import a_pod

DRIVER = Isolation(memory="driver")
MPS = Isolation(memory="mps", compute="mps")


def asked(demanded: str | None = None, wide: Selection = ANYTHING, default: Demanded = "any", whole: int = 0) -> PodAsk:
    annotations = {} if demanded is None else {names.ISOLATION: demanded}
    pod = a_pod(mem=0 if whole else 4, whole=whole, annotations=annotations)
    found = ask.parse(pod, DEFAULT_RESOURCES, wide, default)
    assert found is not None
    return found


def books(isolation: Isolation | None, **further: object) -> NodeBooks:
    return NodeBooks(
        Inventory(
            v=1,
            unit_mib=1024,
            slices_per_gpu=10,
            isolation=isolation,
            gpus=(Gpu(index=0, uuid="GPU-0", mem=16),),
            **further,  # type: ignore[arg-type]
        )
    )


@pytest.mark.parametrize(
    ("isolation", "met"),
    [
        (PROMISED, {"any"}),
        (DRIVER, {"any", "memory"}),
        (Isolation(memory="library"), {"any", "memory"}),
        (Isolation(memory="driver", compute="cooperative"), {"any", "memory"}),
        (Isolation(compute="mps"), {"any"}),
        (MPS, {"any", "memory", "compute"}),
    ],
)
def test_a_demand_is_met_by_what_is_enforced(isolation: Isolation, met: set[str]) -> None:
    assert {each for each in DEMANDED if isolation.meets(each)} == met


def test_the_stricter_demand_is_in_the_order_of_the_words() -> None:
    assert all(
        stricter(one, other) == DEMANDED[max(i, j)]
        for (i, one), (j, other) in itertools.product(enumerate(DEMANDED), repeat=2)
    )


@pytest.mark.parametrize(
    ("own", "of_class", "default", "demanded"),
    [
        (None, "any", "any", "any"),
        ("memory", "any", "any", "memory"),
        (None, "any", "compute", "compute"),
        ("any", "any", "compute", "any"),
        ("any", "memory", "any", "memory"),
        ("compute", "memory", "any", "compute"),
        (None, "memory", "any", "memory"),
    ],
)
def test_a_pod_overrides_the_default_and_narrows_its_class(
    own: str | None, of_class: Demanded, default: Demanded, demanded: Demanded
) -> None:
    found = asked(own, Selection(isolation=of_class), default)
    assert found.containers[0].isolation == demanded
    assert found.selection.isolation == "any"


def test_another_word_is_refused() -> None:
    with pytest.raises(AskError, match=r"gangshare.io/isolation is 'mps': expected any, memory, compute"):
        asked("mps")


def test_parts_go_only_where_the_demand_is_met() -> None:
    gpu = Gpu(index=0, uuid="GPU-0", mem=16)
    demanding, plain = asked("memory").containers[0], asked().containers[0]
    assert books(None).demand(demanding, gpu) is books(PROMISED).demand(demanding, gpu) is None
    assert books(DRIVER).demand(demanding, gpu) == books(None).demand(plain, gpu) == (4, 0, False)


def test_a_whole_gpu_is_isolated_by_having_one_holder_but_a_replica_is_not() -> None:
    gpu, whole = Gpu(index=0, uuid="GPU-0", mem=16), asked("compute", whole=1).containers[0]
    assert books(None).demand(whole, gpu) == (16, 10, True)
    assert books(None, replicas={names.WHOLE_GPU: 2}).demand(whole, gpu) is None


def test_a_running_pod_is_charged_whatever_its_node_enforces_by_now() -> None:
    found = books(DRIVER)
    demanding = asked("memory")
    found.place("uid", demanding, None)
    found.set_inventory(inventory.Inventory(v=1, unit_mib=1024, slices_per_gpu=10, gpus=found.inventory.gpus))
    assert found.gpus["GPU-0"].mem_used == 4


def test_a_hold_does_not_stand_where_the_demand_is_not_met_any_more() -> None:
    found, demanding = books(DRIVER), asked("memory")
    demand = found.demand(demanding.containers[0], found.gpus["GPU-0"].gpu)
    assert demand is not None
    charges = {"GPU-0": demand}
    found.hold("uid", demanding, charges)
    assert found.stands("uid", charges)
    found.set_inventory(inventory.Inventory(v=1, unit_mib=1024, slices_per_gpu=10, gpus=found.inventory.gpus))
    assert not found.stands("uid", charges)


def test_nodes_that_enforce_differently_are_told_apart_and_the_reason_does_not_matter() -> None:
    assert books(None).signature() is not books(DRIVER).signature()
    assert books(DRIVER).signature() is books(Isolation(memory="driver", why="no MPS")).signature()


def test_words() -> None:
    assert str(PROMISED) == "memory promised, compute promised"
    assert str(MPS) == "memory enforced (mps), compute capped (mps)"


def test_an_inventory_without_isolation_is_written_as_before() -> None:
    found = inventory.encode(books(None).inventory)
    assert "isolation" not in found
    again = inventory.decode(inventory.encode(books(DRIVER).inventory))
    assert again is not None
    assert again.isolation == DRIVER
