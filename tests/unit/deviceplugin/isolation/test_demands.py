"""What a container gets of the node's isolation, and whom the node refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deviceplugin import adopt
from deviceplugin.devices import Sharing
from deviceplugin.isolation import demands
from deviceplugin.isolation.checks import Limiter
from protos.contract import allocation, names
from protos.contract.allocation import Share
from protos.contract.inventory import Inventory
from protos.contract.isolation import PROMISED, Demanded, Isolation
from tests.unit.deviceplugin.builders import a_container, a_pod, an_allocation, an_inventory

DRIVER = Isolation(memory="driver", why="nothing on this node caps compute")


def on(isolation: Isolation | None, *mems: int, **sharing: Any) -> Inventory:
    return msgspec.structs.replace(an_inventory(*mems, sharing=Sharing(**sharing)), isolation=isolation)


def a_claim(
    demanded: str = "", by_extender: Demanded | None = None, running: tuple[str, ...] = (), **ask: int
) -> adopt.Claim:
    annotations = {names.ISOLATION: demanded} if demanded else {}
    if by_extender is not None:
        told = msgspec.structs.replace(an_allocation(main=(0,)), isolation=by_extender)
        annotations[names.ALLOCATION] = allocation.encode(told)
    pod = a_pod("p", a_container("main", **(ask or {"mem": 4})), annotations=annotations, running=running)
    claim = adopt.claim_of(pod, names.Resources(), {})
    assert claim is not None
    return claim


@pytest.mark.parametrize(
    ("shares", "mib"),
    [
        ((Share("GPU-0", 0, 4, 25),), 4096),
        ((Share("GPU-0", 0, 4), Share("GPU-1", 1, 4)), 4096),
        ((Share("GPU-0", 0, 8, 50), Share("GPU-1", 1, 4, 50)), 4096),  # slices of unequal GPUs
        ((Share("GPU-0", 0, 99),), 16 * 1024),  # never above what the GPU has
        ((Share("GPU-0", 0, 99), Share("GPU-1", 1, 99)), 8 * 1024),
        ((Share("GPU-7", 7, 4),), 4096),  # a GPU that left
        ((Share("GPU-0", 0, 0, 1),), 1),  # a share that rounds to no unit is not the whole GPU
        ((Share("GPU-0", 0, 16, 100, whole=True),), 0),
        ((), 0),
    ],
)
@pytest.mark.parametrize("by", ["driver", "library"])
def test_one_limit_holds_for_all_gpus_of_a_container(shares: tuple[Share, ...], mib: int, by: Limiter) -> None:
    assert demands.limit_mib(shares, on(Isolation(memory=by), 16, 8), by) == mib


@pytest.mark.parametrize("isolation", [None, PROMISED, Isolation(memory="library"), Isolation(memory="mps")])
def test_where_the_driver_does_not_enforce_it_sets_no_limit(isolation: Isolation | None) -> None:
    assert demands.limit_mib((Share("GPU-0", 0, 4),), on(isolation, 16)) == 0


def test_where_the_driver_enforces_the_library_sets_none() -> None:
    assert demands.limit_mib((Share("GPU-0", 0, 4),), on(DRIVER, 16), "library") == 0


@pytest.mark.parametrize(
    ("isolation", "claim", "refused"),
    [
        (None, a_claim(), False),
        (None, a_claim("any"), False),
        (None, a_claim("memory"), True),
        (PROMISED, a_claim("memory"), True),
        (DRIVER, a_claim("memory"), False),
        (DRIVER, a_claim("compute"), True),
        (Isolation("mps", "mps"), a_claim("compute"), False),
        (PROMISED, a_claim(by_extender="memory"), True),  # a default of namespace or class
        (DRIVER, a_claim(by_extender="memory"), False),
        (PROMISED, a_claim("memory", by_extender="any"), True),  # never less than the pod says
        (PROMISED, a_claim("memory", whole=1), False),  # one holder is isolated
        (PROMISED, a_claim(by_extender="compute", whole=1), False),
        (PROMISED, a_claim("memory", running=("main",)), False),  # it was admitted before
    ],
)
def test_a_pod_that_demands_more_than_is_in_force_is_refused(
    isolation: Isolation | None, claim: adopt.Claim, refused: bool
) -> None:
    assert (demands.refusal(claim, {}, on(isolation, 16)) is not None) is refused


def test_a_replica_of_a_whole_gpu_is_a_part() -> None:
    claim = a_claim("memory", whole=1)
    assert demands.refusal(claim, {}, on(PROMISED, 16, replicas={names.WHOLE_GPU: 4})) is not None


def test_the_refusal_names_what_is_demanded_what_is_given_and_why_it_is_no_more() -> None:
    reason = demands.refusal(a_claim("compute"), {}, on(DRIVER, 16))
    assert reason is not None
    assert (reason.code, str(reason)) == (
        "NoIsolation",
        "the pod demands isolation of compute, and this node gives memory enforced (driver), compute promised: "
        "nothing on this node caps compute",
    )


def test_a_corrected_annotation_still_says_what_is_demanded() -> None:
    claim = msgspec.structs.replace(a_claim(by_extender="memory"), given={"main": ("GPU-1",)})
    corrected = adopt.corrected(claim, on(DRIVER, 16, 16))
    assert corrected is not None
    assert corrected.isolation == "memory"
