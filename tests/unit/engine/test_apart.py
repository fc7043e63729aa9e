"""Members of a gang that may not be on one node together are planned apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from extender.engine.state.apart import Spread, spread, words
from gangfilter.table import Phase
from protos.contract.objects import Pod
from tests.builders import a_container, a_node, a_pod
from tests.unit.engine.gang_story import GangStory, a_member, members

HOST = "kubernetes.io/hostname"
WORKERS = {"matchLabels": {"role": "worker"}}


def shunning(*terms: dict[str, Any], how: str = "required") -> dict[str, Any]:
    """A spec with such anti-affinity."""
    return {"affinity": {"podAntiAffinity": {f"{how}DuringSchedulingIgnoredDuringExecution": list(terms)}}}


def a_term(selector: dict[str, Any] | None = WORKERS, key: str = HOST, **fields: Any) -> dict[str, Any]:
    return {"topologyKey": key, **({} if selector is None else {"labelSelector": selector}), **fields}


def of(*terms: dict[str, Any], how: str = "required") -> tuple[str, ...]:
    return words(a_pod(labels={"role": "worker"}, spec=shunning(*terms, how=how)))


def with_port(**port: Any) -> Pod:
    return a_pod(containers=[a_container("main", whole=1, ports=[{"containerPort": 80, **port}])])


def test_a_pod_that_says_nothing_goes_beside_everybody() -> None:
    assert words(a_pod(whole=1)) == ()
    assert words(with_port()) == ()


def test_a_port_of_the_node_is_taken_once() -> None:
    assert words(with_port(hostPort=80)) == ("port TCP 80",)
    assert words(with_port(hostPort=80, protocol="UDP", hostIP="10.0.0.1")) == ("port UDP 80 10.0.0.1",)
    assert words(with_port(hostPort=80, hostIP="0.0.0.0")) == ("port TCP 80",)
    sidecar = {"name": "helper", "restartPolicy": "Always", "ports": [{"hostPort": 81}]}
    assert words(a_pod(init=[sidecar, {"name": "before", "ports": [{"hostPort": 82}]}])) == ("port TCP 81",)


@pytest.mark.parametrize(
    "term",
    [
        a_term(),
        a_term({}),
        a_term({"matchExpressions": [{"key": "role", "operator": "Exists"}]}),
        a_term(namespaces=["other", "default"]),
        a_term(namespaceSelector={}),
    ],
)
def test_who_shuns_its_like_is_alone(term: dict[str, Any]) -> None:
    assert len(of(term)) == 1
    assert of(term) == of(term, term)


@pytest.mark.parametrize(
    "term",
    [
        a_term(None),
        a_term({"matchLabels": {"role": "ps"}}),
        a_term(key="zone"),
        a_term(namespaces=["other"]),
        a_term(namespaceSelector={"matchLabels": {"team": "a"}}),
    ],
)
def test_who_shuns_others_is_left_to_kube_scheduler(term: dict[str, Any]) -> None:
    assert of(term) == ()


def test_wishes_and_what_cannot_be_read_keep_nobody_apart() -> None:
    assert of({"weight": 1, "podAffinityTerm": a_term()}, how="preferred") == ()
    assert of({"topologyKey": 7}) == ()


APART: list[dict[str, Any]] = [
    {"labels": {"role": "worker"}, "spec": shunning(a_term())},
    {"containers": [a_container("main", mem=8, ports=[{"containerPort": 80, "hostPort": 80}])]},
]


@pytest.mark.parametrize("fields", APART, ids=["anti-affinity", "port"])
def test_a_gang_of_one_a_node_starts_at_once(fields: dict[str, Any]) -> None:
    """Two of its members would fit on each node."""
    world = GangStory(*(a_node(f"n{i}", 16, 16) for i in range(3)))
    world.create(*members(3, **fields))
    assert world.come("m0", "m1", "m2") == ["held", "held", "flying"]
    assert sorted(place.node for place in world.flying.values()) == ["n0", "n1", "n2"]


@pytest.mark.parametrize("fields", APART, ids=["anti-affinity", "port"])
def test_more_of_them_than_nodes_wait_with_the_reason(fields: dict[str, Any]) -> None:
    world = GangStory(*(a_node(f"n{i}", 16, 16) for i in range(3)))
    world.create(*members(4, **fields))
    assert world.phase() is Phase.WAITING
    assert world.booked() == []
    reason = world.known().reason
    assert reason is not None
    assert reason.numbers == (
        "needs 4×8 GiB; 3 can be placed: n0 1, n1 1, n2 1; short by 1; passed over: 3 of members that must be apart"
    )


def test_others_of_the_gang_go_beside_them() -> None:
    world = GangStory(*(a_node(f"n{i}", 16, 16) for i in range(2)))
    workers = members(2, least=4, **APART[0])
    world.create(*workers, *(a_member(f"ps{i}", least=4, role="ps") for i in range(2)))
    assert world.phase() is Phase.STARTING


def evenly(skew: int = 1, selector: dict[str, Any] | None = WORKERS, key: str = HOST, **fields: Any) -> dict[str, Any]:
    """One topologySpreadConstraint, which must hold."""
    told = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **fields}
    return {**told, **({} if selector is None else {"labelSelector": selector})}


def spread_of(*each: dict[str, Any]) -> Spread | None:
    return spread(a_pod(labels={"role": "worker"}, spec={"topologySpreadConstraints": list(each)}))


def test_the_strictest_spread_over_nodes_counts() -> None:
    found = spread_of(evenly(3), evenly(2))
    assert found is not None
    assert found.skew == 2
    assert spread_of() is None


@pytest.mark.parametrize(
    "other",
    [
        evenly(key="zone"),
        evenly(selector=None),
        evenly(selector={"matchLabels": {"role": "ps"}}),
        evenly(whenUnsatisfiable="ScheduleAnyway"),
        {"maxSkew": "two"},
    ],
)
def test_other_spreads_are_left_to_kube_scheduler(other: dict[str, Any]) -> None:
    assert spread_of(other) is None


@pytest.mark.parametrize(
    ("count", "skew", "found"),
    [(4, 1, [1, 1, 1, 1]), (8, 1, [2, 2, 2, 2]), (6, 1, [1, 1, 2, 2]), (2, 1, [1, 1]), (8, 2, [2, 2, 2, 2])],
)
@pytest.mark.parametrize("fields", [{}, {"mem": 0}], ids=["on GPUs", "without"])
def test_a_gang_that_must_be_spread_is_planned_evenly(
    count: int, skew: int, found: list[int], fields: dict[str, Any]
) -> None:
    """Four of its members would fit on each node."""
    world = GangStory(*(a_node(f"n{i}", 16, 16) for i in range(4)))
    spec = {"topologySpreadConstraints": [evenly(skew)]}
    world.create(*members(count, labels={"role": "worker"}, spec=spec, **fields))
    assert world.come(*(f"m{i}" for i in range(count)))[-1] == "flying"
    assert sorted(Counter(place.node for place in world.flying.values()).values()) == found


def test_a_gang_that_cannot_be_spread_waits_with_the_reason() -> None:
    world = GangStory(a_node("n0", 16, 16), a_node("n1", 8))
    spec = {"topologySpreadConstraints": [evenly()]}
    world.create(*members(5, labels={"role": "worker"}, spec=spec))
    assert world.phase() is Phase.WAITING
    reason = world.known().reason
    assert reason is not None
    assert "passed over: 1 of members that must be spread" in reason.numbers
