"""Queues as they are read: ours, Volcano's and ElasticQuotas."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gangfilter import podgroups
from protos.contract import gpu_class, names
from protos.contract.queue import GPU, GPUS, Queue, shown
from protos.contract.queue_sources import OWN, SOURCES, Source, decode
from protos.contract.selector import Selector

_, VOLCANO, ELASTIC, KOORDINATOR = SOURCES


def read(source: Source, spec: Any, status: Any = None, **metadata: Any) -> Queue:
    made = {"metadata": {"name": "q", **metadata}, "spec": spec, **({"status": status} if status else {})}
    return decode(source, json.dumps(made).encode())


def test_what_is_not_said_is_not_limited() -> None:
    assert read(OWN, {}) == Queue(name="q")
    assert decode(OWN, b'{"metadata": {"name": "q"}}') == Queue(name="q")


def test_amounts_are_counted_as_pods_ask_for_them() -> None:
    said = {"gpus": "2.5", "class/a100": 1, "cpu": "1500m", "memory": "1Gi", "gangshare.io/gpu-mem": 40, "pods": 5}
    assert read(OWN, {"capability": said}).capability == {
        GPUS: 2_500_000, "class/a100": GPU, "cpu": 1500, "memory": 2**30, "gangshare.io/gpu-mem": 40, "pods": 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"weight": 0}, "weight is 0: expected a whole number from 1 to 10000"),
        ({"priority": 2**40}, "priority is more than 1000000000000: expected a whole number from -1000000000"),
        ({"capability": {"gpu": 4}}, "capability names 'gpu': expected gpus, class/NAME, cpu, memory, pods or"),
        ({"capability": {"class/": 4}}, "capability names 'class/'"),
        *(
            ({"capability": {name: 4}}, f"capability names '{name}': expected gpus, class/NAME, cpu")
            for name in ("requests.nvidia.com/gpu", "gangshare.io/gpus", "classes/large", "nvidia.com/")
        ),
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


# -- whose pods may use it


def test_a_namespace_selector_is_read_as_kubernetes_reads_it() -> None:
    said = {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["test"]}]}
    found = read(OWN, {"namespaceSelector": said}).namespace_selector
    assert found is not None
    assert found.selects({"team": "a"})
    assert not found.selects({"team": "a", "env": "test"})
    assert read(OWN, {"namespaceSelector": {}}).namespace_selector == Selector()
    assert read(OWN, {"namespaceSelector": None}).namespace_selector is None


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (5, "Expected `object | null`, got `int`"),
        ({"matchLabels": {"team": 1}}, "Expected `str`, got `int`"),
        ({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}, "'a' Gt: expected In, NotIn, Exists"),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "'a' In has 0 values: expected some for In and NotIn"),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}, "'a' Exists has 1 values"),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x"] * 257}]},
            "values of an entry of matchExpressions: 257, expected at most 256",
        ),
        ({"matchLabels": {str(i): "" for i in range(33)}}, "of a namespaceSelector: 33, expected at most 32"),
    ],
)
def test_a_selector_that_cannot_be_read_admits_nobody(said: Any, problem: str) -> None:
    found = read(OWN, {"namespaceSelector": said})
    assert problem in found.problem
    assert found.problem.endswith("; it admits no namespace")
    assert found.namespace_selector is not None
    assert not any(found.namespace_selector.selects(labels) for labels in ({}, {"a": "x"}, {"team": "a"}))


# -- bounds


@pytest.mark.parametrize(
    ("source", "spec", "problem"),
    [
        (OWN, {"namespaces": ["a"] * 1025}, "namespaces of a queue: 1025, expected at most 1024"),
        (
            OWN,
            {"capability": {f"example.com/{i}": 1 for i in range(65)}},
            "capability: resources of one list of amounts: 65, expected at most 64",
        ),
        (ELASTIC, {"min": {"x" * 318: 1}}, "min: name of a resource: 318 characters, expected at most 317 characters"),
        (OWN, {"weight": 10**400}, "weight is more than 1000000000000: expected a whole number"),
    ],
)
def test_what_is_past_its_bound_is_a_problem_of_the_queue(source: Source, spec: Any, problem: str) -> None:
    assert problem in read(source, spec, namespace="ns").problem


def test_an_amount_is_no_larger_than_kubernetes_largest() -> None:
    found = read(ELASTIC, {"max": {"gpus": 10**400, "example.com/x": 10**400}}, namespace="ns")
    assert found.capability["example.com/x"] == 2**63 - 1
    assert shown("gpus", found.capability["gpus"]).startswith("922337203685477")


def test_what_stands_in_the_status_of_our_kinds_counts_for_nothing() -> None:
    """Else whoever may write a status would say what a queue has, a class means or a gang needs."""
    forged = {
        "allocated": {"gpus": "-5"},
        "closed": True,
        "state": "Closed",
        "minMember": 1,
        "models": ["*"],
        "phase": 7,
    }
    group = next(kind for kind in podgroups.KINDS if kind.api_group == names.DOMAIN)
    decoders: tuple[tuple[dict[str, Any], Callable[[bytes], Any]], ...] = (
        ({"capability": {"gpus": 4}}, lambda data: decode(OWN, data)),
        ({"minMember": 4}, lambda data: podgroups.declaration(group, data)),
        ({"models": ["A100*"]}, gpu_class.decode),
    )
    for spec, reading in decoders:
        honest = {"metadata": {"name": "mine", "namespace": "default"}, "spec": spec}
        plain, lying = (reading(msgspec.json.encode(made)) for made in (honest, honest | {"status": forged}))
        assert plain == lying
        assert not getattr(plain, "problem", "")
