"""Which containers are checked, and what the driver's answers mean."""

from __future__ import annotations

import msgspec
import pytest

from deviceplugin.checkpoint import Entry
from deviceplugin.devices import Sharing
from deviceplugin.isolation import checks
from deviceplugin.isolation.checks import Limited, Read, Verdict
from deviceplugin.machine import MemoryLimit
from deviceplugin.record import Record
from protos.contract import names, objects
from protos.contract.objects import Pod
from tests.unit.deviceplugin.builders import a_container, a_pod, an_inventory

MIB = 2**20


def running(name: str = "p", number: str = "ab" * 32, phase: str = "Running", init: bool = False) -> Pod:
    """A pod whose container `main` runs."""
    status = {"name": "main", "state": {"running": {}}, "containerID": f"containerd://{number}" if number else ""}
    told = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "status": {"phase": phase, "initContainerStatuses" if init else "containerStatuses": [status]},
    }
    return objects.decode_pod(msgspec.json.encode(told))


def a_record(mib: int = 4096) -> Record:
    record = Record()
    record.fix("uid-p", {"main": ("GPU-0", "GPU-1")})
    record.limit("uid-p", "main", mib)
    return record


def test_a_running_container_with_a_limit_is_checked() -> None:
    for pod in (running(), running(init=True)):
        assert checks.limited([pod], a_record()) == {
            ("uid-p", "ab" * 32): Limited(pod, "main", ("GPU-0", "GPU-1"), 4096)
        }


@pytest.mark.parametrize(
    "pod", [running(number=""), running(phase="Succeeded"), running("other"), a_pod("p", a_container(mem=4))]
)
def test_others_are_not(pod: Pod) -> None:
    assert checks.limited([pod], a_record()) == {}
    assert checks.limited([running()], a_record(0)) == {}


GIVEN = Limited(running(), "main", ("GPU-0", "GPU-1"), 4096)
FOUR = Read(MemoryLimit(4096 * MIB))
OF_POD = GIVEN._replace(of_pod={"GPU-0": 6144, "GPU-1": 6144})
SIX = Read(None, MemoryLimit(6144 * MIB))


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        ({}, Verdict("unknown")),
        ({"GPU-0": FOUR}, Verdict("unknown")),
        ({"GPU-0": FOUR, "GPU-1": FOUR}, Verdict("enforced")),
        (
            {"GPU-0": FOUR, "GPU-1": Read(None)},
            Verdict("mismatch", "container main has no memory limit on GPU 1: it was given 4096 MiB", unlimited=True),
        ),
        (
            {"GPU-0": Read(MemoryLimit(8192 * MIB)), "GPU-1": FOUR},
            Verdict("mismatch", "container main has a memory limit of 8192 MiB on GPU 0: it was given 4096 MiB"),
        ),
        (
            {"GPU-0": Read(MemoryLimit(1024 * MIB)), "GPU-1": FOUR},
            Verdict("mismatch", "container main has a memory limit of 1024 MiB on GPU 0: it was given 4096 MiB"),
        ),
    ],
)
def test_what_the_driver_says_is_what_was_given_or_not(read: dict[str, Read], verdict: Verdict) -> None:
    assert checks.verdict(GIVEN, read, {"GPU-0": 0, "GPU-1": 1}) == verdict


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        ({"GPU-0": SIX, "GPU-1": SIX}, Verdict("enforced")),
        ({"GPU-0": SIX, "GPU-1": FOUR}, Verdict("enforced")),
        (
            {"GPU-0": SIX, "GPU-1": Read(None, MemoryLimit(8192 * MIB))},
            Verdict("mismatch", "the pod has a memory limit of 8192 MiB on GPU 1: it was given 6144 MiB"),
        ),
        (
            {"GPU-0": Read(None), "GPU-1": SIX},
            Verdict("mismatch", "container main has no memory limit on GPU 0: it was given 4096 MiB", unlimited=True),
        ),
    ],
)
def test_where_the_pod_is_limited_its_limit_counts_for_containers_without_one(
    read: dict[str, Read], verdict: Verdict
) -> None:
    assert checks.verdict(OF_POD, read, {"GPU-0": 0, "GPU-1": 1}) == verdict


@pytest.mark.parametrize(("text", "limits"), [("4096", {"main": 4096}), ("", {}), ("0", {}), ("-1", {}), ("4GiB", {})])
def test_a_new_plugin_knows_the_limits_by_the_kubelets_checkpoint(text: str, limits: dict[str, int]) -> None:
    envs = {names.ENV_MEM_MIB: "4096", names.ENV_UUIDS: "GPU-0", names.MEMORY_LIMIT: text}
    record = Record()
    record.load([Entry("uid-p", "main", names.GPU_MEM, (), envs)], an_inventory(16), Sharing())
    assert record.limits("uid-p") == limits
    record.forget("uid-p")
    assert record.limits("uid-p") == {}


def test_of_two_answers_for_one_container_the_first_limit_counts_as_for_the_kubelet() -> None:
    record = a_record(4096)
    record.limit("uid-p", "main", 2048)
    record.limit("uid-p", "main", 0)
    assert record.limits("uid-p") == {"main": 4096}
