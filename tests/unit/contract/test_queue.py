"""Queues as they are read: ours, Volcano's and ElasticQuotas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protos.contract import queue
from protos.contract.queue import GPU, GPUS, OWN, SOURCES, Queue, shown

_, VOLCANO, ELASTIC, KOORDINATOR = SOURCES


def read(source: queue.Source, spec: Any, status: Any = None, **metadata: Any) -> Queue:
    made = {"metadata": {"name": "q", **metadata}, "spec": spec, **({"status": status} if status else {})}
    return queue.decode(source, json.dumps(made).encode())


def test_what_is_not_said_is_not_limited() -> None:
    assert read(OWN, {}) == Queue(name="q")
    assert queue.decode(OWN, b'{"metadata": {"name": "q"}}') == Queue(name="q")


def test_amounts_are_counted_as_pods_ask_for_them() -> None:
    said = {"gpus": "2.5", "class/a100": 1, "cpu": "1500m", "memory": "1Gi", "gangshare.io/gpu-mem": 40, "pods": 5}
    assert read(OWN, {"capability": said}).capability == {
        GPUS: 2_500_000, "class/a100": GPU, "cpu": 1500, "memory": 2**30, "gangshare.io/gpu-mem": 40, "pods": 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"weight": 0}, "weight is 0: expected a whole number from 1 to 10000"),
        ({"priority": 2**40}, "priority is 1099511627776: expected a whole number from -1000000000 to 1000000000"),
        ({"capability": {"gpu": 4}}, "capability names 'gpu': expected gpus, class/NAME, cpu, memory, pods or"),
        ({"capability": {"class/": 4}}, "capability names 'class/'"),
        ({"deserved": {"gpus": "many"}}, "deserved.gpus: 'many' is no quantity"),
        ({"deserved": {"gpus": -1}}, "deserved.gpus is -1: expected zero or more"),
        (
            {"guarantee": {"gpus": 4}, "capability": {"gpus": "3500m"}},
            "guarantee.gpus is '4': expected no more than capability, which is '3500m'",
        ),
        (
            {"deserved": {"cpu": 4}, "capability": {"cpu": 2}},
            "deserved.cpu is '4': expected no more than capability, which is '2'",
        ),
        ({"weight": "two"}, "Expected `int | null`, got `str` - at `$.weight`"),
    ],
)  # fmt: skip
def test_nonsense_names_the_key_the_value_and_what_was_expected(spec: Any, problem: str) -> None:
    found = read(OWN, spec)
    assert found.problem.startswith(f"spec cannot be read: {problem}")
    assert found.capability == {}


def test_volcanos_queue_is_closed_by_its_status_and_hangs_below_the_root() -> None:
    spec = {
        "weight": 0,
        "parent": "root",
        "capability": {"nvidia.com/gpu": 4, "cpu": 8},
        "guarantee": {"resource": {"cpu": 2}},
        "deserved": {"cpu": 4},
        "reclaimable": False,
    }
    found = read(VOLCANO, spec, {"state": "Closing"})
    assert found == Queue(
        name="q", source=VOLCANO.api_version, weight=1, reclaimable=False, closed=True,
        guarantee={"cpu": 2000}, deserved={"cpu": 4000}, capability={"nvidia.com/gpu": 4, "cpu": 8000},
    )  # fmt: skip
    assert not read(VOLCANO, {}, {"state": "Open"}).closed


def test_an_elastic_quota_is_the_queue_of_its_namespace() -> None:
    spec = {"min": {"nvidia.com/gpu": 2}, "max": {"nvidia.com/gpu": 4}}
    found = read(ELASTIC, spec, namespace="team-a")
    assert (found.name, found.namespaces) == ("team-a/q", ("team-a",))
    assert (found.guarantee, found.deserved, found.capability) == ({}, {"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 4})


def test_koordinators_labels_make_a_tree_and_forbid_lending() -> None:
    of = "quota.scheduling.koordinator.sh"
    labels = {f"{of}/parent": "org", f"{of}/allow-lent-resource": "false"}
    found = read(KOORDINATOR, {"min": {"cpu": 1}}, namespace="quotas", labels=labels)
    assert (found.parent, found.guarantee) == ("org", {"cpu": 1000})
    labels = {f"{of}/parent": "koordinator-root-quota"}
    assert read(KOORDINATOR, {}, namespace="quotas", labels=labels).parent == ""


@pytest.mark.parametrize(
    ("resource", "counted", "text"),
    [(GPUS, 2_500_000, "2.5"), (GPUS, 0, "0"), (GPUS, 333_333, "0.333"), ("cpu", 1500, "1.5"), ("memory", 10, "10")],
)
def test_amounts_are_shown_as_people_write_them(resource: str, counted: int, text: str) -> None:
    assert shown(resource, counted) == text
