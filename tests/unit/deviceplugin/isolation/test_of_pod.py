"""The limit of a whole pod: what its containers may use together."""

from __future__ import annotations

from typing import Any

import pytest

from deviceplugin.isolation import demands
from deviceplugin.record import Record
from protos.contract import names
from protos.contract.books import NodeBooks
from protos.contract.objects import Pod
from tests.unit.deviceplugin.builders import a_container, a_pod, a_sidecar, an_inventory

UID = "uid-p"
ONE = ("GPU-0",)


def a_record(limits: dict[str, int], given: dict[str, tuple[str, ...]]) -> Record:
    record = Record()
    record.fix(UID, given)
    for name, mib in limits.items():
        record.limit(UID, name, mib)
    return record


def of_pod(pod: Pod, record: Record, **others: int) -> dict[str, int]:
    return demands.of_pod(pod, record, NodeBooks(an_inventory(16, 16)), names.Resources(), others)


@pytest.mark.parametrize(
    ("pod", "limits", "given", "expected"),
    [
        (a_pod("p"), {"main": 4096}, {"main": ONE}, {"GPU-0": 4096}),
        (
            a_pod("p", a_container("a", mem=4), a_container("b", mem=2)),
            {"a": 4096, "b": 2048},
            {"a": ONE, "b": ("GPU-1",)},
            {"GPU-0": 4096, "GPU-1": 2048},
        ),
        (
            a_pod("p", a_container("a", mem=2), init=(a_container("first", mem=5), a_sidecar("side", mem=1))),
            {"a": 2048, "first": 5120, "side": 1024},
            {"a": ONE, "first": ONE, "side": ONE},
            {"GPU-0": 5120},
        ),
        (
            a_pod("p", a_container("a", mem=4), a_container("b", mem=2)),
            {"a": 4096},
            {"a": ONE, "b": ONE},
            {"GPU-0": 6144},
        ),
        (
            a_pod("p", a_container("a", mem=4), a_container("b", whole=1)),
            {"a": 4096},
            {"a": ONE, "b": ("GPU-1",)},
            {"GPU-0": 4096},
        ),
        (a_pod("p", a_container("a", mem=99)), {"a": 16384}, {"a": ONE}, {"GPU-0": 16384}),
        (a_pod("p"), {}, {"main": ONE}, {}),
        (a_pod("p", phase="Succeeded"), {"main": 4096}, {"main": ONE}, {}),
    ],
    ids=["one", "two GPUs", "init before, sidecar beside", "one without a limit", "beside a whole GPU", "all of it",
         "no limit", "ended"],
)  # fmt: skip
def test_init_containers_run_before_and_others_together(
    pod: Pod, limits: dict[str, int], given: dict[str, tuple[str, ...]], expected: dict[str, Any]
) -> None:
    assert of_pod(pod, a_record(limits, given)) == expected


def test_what_was_changed_counts_and_what_is_about_to() -> None:
    record = a_record({"main": 4096}, {"main": ONE})
    assert of_pod(a_pod("p"), record, main=8192) == {"GPU-0": 8192}
    record.resize(UID, {"main": 2048, "other": 1})
    assert record.limits(UID) == {"main": 2048}
    assert of_pod(a_pod("p"), record) == {"GPU-0": 2048}
    record.forget(UID)
    assert record.limits(UID) == {}


def test_the_pod_is_found_by_exactly_its_devices() -> None:
    record = Record()
    record.note("a", "main", names.GPU_MEM, ("m1", "m2"))
    record.note("b", "main", names.GPU_MEM, ("m3",))
    record.note("c", "main", names.GPU_SLICE, ("m3",))
    assert record.having(names.GPU_MEM, ("m2", "m1")) == [("a", "main")]
    assert record.having(names.GPU_MEM, ("m3",)) == [("b", "main")]
    assert record.having(names.GPU_MEM, ("m1",)) == []
    record.forget("a")
    assert record.having(names.GPU_MEM, ("m1", "m2")) == []
