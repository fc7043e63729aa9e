"""What facts of a node prove, and what a node says that proves less."""

from __future__ import annotations

import msgspec
import pytest

from deviceplugin.isolation import levels
from deviceplugin.isolation.levels import Facts
from protos.contract.bounds import ISOLATION_WHY

GOOD = Facts(driver="615.71.05", limits=True, unified=True, pods=True, toolkit="1.20.1", gpus=4)


def test_a_node_with_all_that_it_needs_enforces_memory_and_says_that_compute_is_promised() -> None:
    found = levels.isolation(GOOD)
    assert str(found) == "memory enforced (driver), compute promised"
    assert found.why == "nothing on this node caps compute"


@pytest.mark.parametrize(
    ("lacks", "why"),
    [
        ({"driver": ""}, "the driver does not tell its version"),
        ({"driver": "595.91.07"}, "driver 595.91.07 is older than 615"),
        ({"driver": "unknown"}, "driver unknown is older than 615"),
        ({"driver": "6" * 4000}, f"driver {'6' * 40} is older than 615"),
        ({"limits": False}, "driver 615.71.05 lacks the call for memory limits"),
        ({"unified": False}, "the host has no cgroup v2, or it is not mounted into the plugin"),
        ({"pods": False}, "the plugin does not see the control groups of pods, so it cannot check limits"),
        ({"toolkit": ""}, "the version of the container toolkit is unknown"),
        ({"toolkit": "", "toolkit_why": "no nvidia-ctk"}, "no nvidia-ctk"),
        ({"toolkit": "1.20.0"}, "container toolkit 1.20.0 is older than 1.20.1"),
        ({"toolkit": "1.20.1-rc.2"}, "container toolkit 1.20.1-rc.2 is older than 1.20.1"),
        ({"mig": 4}, "all GPUs are in MIG mode"),
    ],
)
def test_one_thing_that_lacks_and_the_node_promises_only(lacks: dict[str, object], why: str) -> None:
    found = levels.isolation(msgspec.structs.replace(GOOD, **lacks))
    assert (found.memory, found.compute, found.why) == ("", "", why)


@pytest.mark.parametrize(
    "more",
    [
        {"driver": "616.10"},
        {"driver": "1000.1"},
        {"toolkit": "1.20.1-1"},
        {"toolkit": "v1.20.1"},
        {"toolkit": "1.21.0-rc.1"},
        {"toolkit": "2.0"},
        {"mig": 3},
    ],
)
def test_what_is_enough(more: dict[str, object]) -> None:
    assert levels.isolation(msgspec.structs.replace(GOOD, **more)).memory == "driver"


def test_all_that_lacks_is_told_at_once_and_no_more_than_the_annotation_takes() -> None:
    found = levels.isolation(Facts(driver="535.1", toolkit_why="x" * 5000))
    assert found.why.startswith("driver 535.1 is older than 615; xxx")
    assert len(found.why) == ISOLATION_WHY.most
    assert levels.isolation(Facts(driver="535.1")).why.count("; ") == 2


def test_what_containers_have_shown_counts_more_than_what_the_node_seems_to_prove() -> None:
    found = levels.isolation(GOOD, {"toolkit": "a container runs without its limit"})
    assert (found.memory, found.why) == ("", "a container runs without its limit")


OF_PODS = "memory limits hold for pods, not for each of their containers; nothing on this node caps compute"
NO_TOOLKIT = msgspec.structs.replace(GOOD, toolkit="1.17.0")


@pytest.mark.parametrize(
    ("facts", "refuted", "setter", "why"),
    [
        (msgspec.structs.replace(GOOD, helper=""), {}, "toolkit", "nothing on this node caps compute"),
        (msgspec.structs.replace(NO_TOOLKIT, helper=""), {}, "helper", OF_PODS),
        (msgspec.structs.replace(GOOD, helper=""), {"toolkit": "not run"}, "helper", OF_PODS),
        (
            msgspec.structs.replace(NO_TOOLKIT, helper="it does not answer"),
            {},
            "",
            "container toolkit 1.17.0 is older than 1.20.1; the helper that sets limits: it does not answer",
        ),
        (
            msgspec.structs.replace(GOOD, helper=""),
            {"toolkit": "not run", "helper": "does not hold"},
            "",
            "not run; does not hold",
        ),
        (NO_TOOLKIT, {}, "", "container toolkit 1.17.0 is older than 1.20.1"),
    ],
)
def test_a_helper_stands_in_for_the_hook(facts: Facts, refuted: levels.Refuted, setter: str, why: str) -> None:
    found = levels.isolation(facts, refuted)
    assert (levels.setter(facts, refuted), found.memory, found.why) == (setter, "driver" if setter else "", why)


def test_a_helper_does_not_stand_in_for_driver_and_control_groups() -> None:
    for lacks in ({"driver": "595.1"}, {"unified": False}, {"pods": False}, {"limits": False}):
        assert levels.isolation(msgspec.structs.replace(NO_TOOLKIT, helper="", **lacks)).memory == ""
