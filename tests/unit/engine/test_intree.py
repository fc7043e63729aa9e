"""What kube-scheduler holds against a node, told from a pod's spec as kube-scheduler does."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.state.intree import ANYWHERE, Constraints, constraints, counted, lacking
from protos.contract.bounds import REQUIRED_VALUES, REQUIREMENTS
from protos.contract.objects import Taint
from tests.builders import a_pod
from tests.unit.engine.fleets import a_state

LABELS = {"zone": "a", "rack": "7", "gpu": ""}


def of(**spec: Any) -> Constraints:
    return constraints(a_pod(spec=spec))


def requiring(*terms: dict[str, Any]) -> Constraints:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return of(affinity={"nodeAffinity": required})


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def admits(found: Constraints, *taints: Taint, unschedulable: bool = False) -> bool:
    node = a_state("node-a", 0, labels=LABELS, taints=taints)
    node.unschedulable = unschedulable
    return found.admits(node)


def test_a_pod_that_says_nothing_goes_to_every_node_without_taints() -> None:
    assert of() == ANYWHERE
    assert admits(ANYWHERE)
    assert not ANYWHERE.selective


def test_every_label_of_the_node_selector_must_be_there() -> None:
    assert admits(of(nodeSelector={"zone": "a", "gpu": ""}))
    assert not admits(of(nodeSelector={"zone": "a", "rack": "8"}))
    assert not admits(of(nodeSelector={"missing": ""}))
    assert of(nodeSelector={"zone": "a"}).selective


@pytest.mark.parametrize(
    ("key", "operator", "values", "met"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("missing", "In", ("a",), False),
        ("zone", "NotIn", ("b",), True),
        ("zone", "NotIn", ("a", "b"), False),
        ("missing", "NotIn", ("a",), True),
        ("gpu", "Exists", (), True),
        ("missing", "Exists", (), False),
        ("gpu", "DoesNotExist", (), False),
        ("missing", "DoesNotExist", (), True),
        ("rack", "Gt", ("6",), True),
        ("rack", "Gt", ("7",), False),
        ("rack", "Lt", ("+8",), True),
        ("rack", "Lt", ("-8",), False),
        ("zone", "Gt", ("0",), False),
        ("missing", "Lt", ("9",), False),
        ("rack", "Gt", ("six",), False),
        ("rack", "Gt", ("1", "2"), False),
    ],
)
def test_an_expression_holds_where_kube_scheduler_says_so(
    key: str, operator: str, values: tuple[str, ...], met: bool
) -> None:
    assert admits(requiring(expression(key, operator, *values))) is met


def test_one_term_must_hold_and_all_of_it() -> None:
    both = expression("zone", "In", "a")["matchExpressions"] + expression("rack", "In", "8")["matchExpressions"]
    assert not admits(requiring({"matchExpressions": both}))
    assert admits(requiring({"matchExpressions": both}, expression("rack", "In", "7")))


def test_an_empty_term_holds_nowhere() -> None:
    assert not admits(requiring({}))
    assert admits(requiring({}, expression("zone", "Exists")))


def test_a_node_can_be_asked_for_by_name() -> None:
    def named(operator: str, name: str) -> dict[str, Any]:
        return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}

    assert admits(requiring(named("In", "node-a")))
    assert not admits(requiring(named("In", "node-b")))
    assert not admits(requiring(named("NotIn", "node-a")))
    assert not admits(requiring(named("In", "node-a") | expression("zone", "In", "b")))


def test_preferences_and_affinity_to_pods_do_not_keep_a_pod_off() -> None:
    preferred = [{"weight": 1, "preference": expression("zone", "In", "b")}]
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]},
    }
    assert of(affinity=affinity) == ANYWHERE


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "yes"}, True),
        ({"key": "gpu", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "", "value": "yes"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Lt", "value": "5"}, True),
    ],
)
def test_a_taint_keeps_off_who_does_not_tolerate_it(toleration: dict[str, str], tolerated: bool) -> None:
    taint = Taint(key="gpu", value="yes", effect="NoSchedule")
    assert admits(of(tolerations=[toleration]), taint) is tolerated


def test_every_taint_that_repels_must_be_tolerated_and_no_other() -> None:
    hard, soft = Taint(key="a", effect="NoExecute"), Taint(key="b", effect="PreferNoSchedule")
    assert admits(ANYWHERE, soft)
    assert not admits(ANYWHERE, soft, hard)
    tolerant = of(tolerations=[{"key": "a", "operator": "Exists"}])
    assert admits(tolerant, soft, hard)
    assert not admits(tolerant, hard, Taint(key="c", effect="NoSchedule"))


def test_a_cordoned_node_takes_only_those_who_tolerate_that() -> None:
    assert not admits(ANYWHERE, unschedulable=True)
    assert admits(of(tolerations=[{"operator": "Exists"}]), unschedulable=True)
    tolerant = of(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert admits(tolerant, unschedulable=True)


def test_what_cannot_be_decoded_is_left_to_kube_scheduler() -> None:
    assert admits(of(affinity={"nodeAffinity": "nonsense"}))
    assert admits(requiring(expression("zone", "Around", "b")))
    assert admits(of(tolerations="nonsense"), Taint(key="a", effect="NoSchedule"))
    assert of(affinity=None, tolerations=None) == ANYWHERE


def test_equal_specs_give_the_same_object() -> None:
    first, second = (
        of(nodeSelector=labels, tolerations=[{"operator": "Exists"}])
        for labels in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})
    )
    assert first is second


def test_the_first_resource_that_is_short_is_named() -> None:
    amounts = counted((("cpu", 2000), ("gpus", 4), ("memory", 0), ("pods", 1)), ignored={"gpus"})
    assert amounts == (("cpu", 2000), ("pods", 1))
    allocatable = {"cpu": 4000, "pods": 2}
    assert lacking(amounts, allocatable, {"cpu": 2000, "pods": 1}) == ""
    assert lacking(amounts, allocatable, {"cpu": 2001}) == "cpu"
    assert lacking((("rdma/hca", 1),), allocatable, {}) == "rdma/hca"


def test_a_node_that_is_overcommitted_takes_who_asks_nothing_of_that() -> None:
    assert lacking(counted((("cpu", 0), ("pods", 1))), {"cpu": 1000, "pods": 9}, {"cpu": 5000}) == ""


def many(count: int, values: int = 1) -> list[dict[str, Any]]:
    """Terms of one requirement each, of which no node meets any."""
    return [expression(f"k{n}", "In", *(f"v{v}" for v in range(values))) for n in range(count)]


def test_an_affinity_of_many_requirements_is_left_to_kube_scheduler() -> None:
    """590 terms fit into 32 KiB, and took half a millisecond on each node."""
    assert not admits(requiring(*many(REQUIREMENTS.most)))
    assert admits(requiring(*many(REQUIREMENTS.most + 1)))
    assert not admits(requiring(*many(4, REQUIRED_VALUES.most // 4)))
    assert admits(requiring(*many(4, REQUIRED_VALUES.most // 4 + 1)))


def test_what_takes_longer_costs_more() -> None:
    assert of().cost == requiring(*many(1)).cost == 1
    assert requiring(*many(1, 640)).cost == 11
    assert requiring(*many(64)).cost == 34
