"""What a pod was promised: GPUs by its allocation if we wrote it, amounts by its limits."""

from __future__ import annotations

from typing import Any

import pytest

from deviceplugin.usage.holders import Promise, holder
from protos.contract import names
from protos.contract.books import NodeBooks
from tests.unit.deviceplugin.builders import a_container, a_pod, a_sidecar, placed
from tests.unit.deviceplugin.usage import made

BOOKS = NodeBooks(made.an_inventory(16, 16))
RESOURCES = names.DEFAULT_RESOURCES


def promised(pod: Any, books: NodeBooks | None = BOOKS) -> tuple[tuple[Promise, ...], dict[str, float]]:
    found = holder(pod, books, RESOURCES)
    assert found is not None
    return found.promises, dict(found.parts)


def test_amounts_come_from_the_limits_and_gpus_from_the_allocation() -> None:
    pod = made.a_pod(a_pod("p", a_container(mem=4), annotations=placed(main=(1,))))
    assert promised(pod) == ((Promise("main", "GPU-1", 4096, False),), {"GPU-1": 0.25})


def test_slices_are_their_part_of_the_memory_and_a_whole_gpu_is_all_of_it() -> None:
    slices = made.a_pod(a_pod("p", a_container(slices=50), annotations=placed(main=(0,))))
    assert promised(slices) == ((Promise("main", "GPU-0", 8192, False),), {"GPU-0": 0.5})
    whole = made.a_pod(
        a_pod("p", a_container(whole=1), annotations={names.ALLOCATION: placed(main=(0,))[names.ALLOCATION].replace(
            '"whole":false', '"whole":true')})
    )  # fmt: skip
    assert promised(whole) == ((Promise("main", "GPU-0", 16384, True),), {"GPU-0": 1.0})


@pytest.mark.parametrize("managed", [[made.MAKER, made.KUBECTL], [], [made.KUBECTL], [made.PLUGIN, made.KUBECTL]])
def test_an_allocation_that_somebody_else_wrote_promises_nothing(managed: list[dict[str, Any]]) -> None:
    pod = made.a_pod(a_pod("p", a_container(mem=4), annotations=placed(main=(1,))), managed=managed)
    assert promised(pod) == ((), {})
    found = holder(pod, BOOKS, RESOURCES)
    assert found is not None
    assert found.asks


def test_the_plugins_correction_is_believed() -> None:
    pod = made.a_pod(a_pod("p", a_container(mem=4), annotations=placed(main=(1,))), managed=[made.MAKER, made.PLUGIN])
    assert promised(pod)[0] == (Promise("main", "GPU-1", 4096, False),)


@pytest.mark.parametrize(
    "annotations", [{}, {names.ALLOCATION: "{"}, {names.ALLOCATION: '{"v":9}'}, placed(other=(0,))]
)
def test_nothing_is_promised_by_what_cannot_be_read(annotations: dict[str, str]) -> None:
    pod = made.a_pod(a_pod("p", a_container(mem=4), annotations=annotations))
    assert promised(pod) == ((), {})
    assert promised(pod, None) == ((), {})


def test_an_init_container_holds_while_it_runs_and_a_sidecar_beside_it_all_the_time() -> None:
    init = (a_container("prepare", mem=8), a_sidecar(mem=2))
    pod = a_pod("p", a_container(mem=4), init=init, annotations=placed(main=(0,), prepare=(0,), side=(0,)))
    assert [p.container for p in promised(made.a_pod(pod))[0]] == ["side", "main"]
    assert promised(made.a_pod(pod))[1] == {"GPU-0": 0.5}


def test_a_pod_has_its_queue_its_owner_and_the_names_of_its_containers() -> None:
    owner = {"kind": "Job", "name": "train", "uid": "u", "controller": True}
    pod = made.a_pod(
        a_pod("p", a_container(mem=4), labels={names.QUEUE: "research"}, ownerReferences=[owner]), ids={"main": "ab"}
    )
    found = holder(pod, BOOKS, RESOURCES)
    assert found is not None
    assert (found.queue, found.owner, found.containers) == ("research", "Job/train", {"ab": "main"})
    long = holder(made.a_pod(a_pod("p", annotations={names.QUEUE: "x" * 5000})), BOOKS, RESOURCES)
    assert long is not None
    assert long.queue == ""


def test_a_pod_that_ended_holds_nothing_and_one_without_an_ask_is_known() -> None:
    assert holder(made.a_pod(a_pod("p", phase="Succeeded")), BOOKS, RESOURCES) is None
    other = holder(made.a_pod(a_pod("p", a_container())), BOOKS, RESOURCES)
    assert other is not None
    assert not other.asks
