"""`gangshare defrag`: the plan as people see it, and which disruption budgets forbid it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.engine.policies.preemption.budgets import forbidden
from protos.contract.budget import Budget, Spec, Status
from protos.contract.objects import ObjectMeta, Pod, PodStatus
from protos.contract.selector import Requirement, Selector
from tests.unit.cli.books import a_gpu, a_holder, a_node
from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import gangshare

PLAN: dict[str, Any] = {
    "for": "default/train",
    "fits": True,
    "verdict": "2 moves make room for default/train: node-a GPU 0 and 1",
    "moves": [
        {
            "namespace": "default",
            "name": name,
            "uid": f"u-{name}",
            "mem": mem,
            "from": {"node": "node-a", "gpus": [gpu]},
            "to": {"node": "node-b", "gpus": [0]},
        }
        for gpu, (name, mem) in enumerate({"web-4": 6, "web-15": 12}.items())
    ],
    "rooms": [],
}
PATH = "/defrag/default/train?max-moves=8"


def test_the_moves_are_a_table_with_a_verdict(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    status_port.answers[PATH] = json.dumps(PLAN).encode()
    ran = gangshare(capsys, "defrag", "--for", "train", "--server", status_port.url)
    assert ran.out.splitlines() == [
        "POD             MEM  FROM          TO",
        "default/web-4   6    node-a GPU 0  node-b GPU 0",
        "default/web-15  12   node-a GPU 1  node-b GPU 0",
        "2 moves make room for default/train: node-a GPU 0 and 1",
    ]
    assert ran.code == 0


def test_no_plan_is_status_1(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    why = "8 whole GPUs on one node: no 8-GPU node can be freed; nearest: node-a, 3 pods there may not be moved"
    answer = {"for": "ml/train", "fits": False, "verdict": why, "moves": [], "rooms": []}
    status_port.answers["/defrag/ml/train?max-moves=2&keep=ml%2Fa&keep=x%2Fb"] = json.dumps(answer).encode()
    asked = ["--for", "ml/train", "--max-moves", "2", "--keep", "a", "--keep", "x/b", "-n", "ml"]
    ran = gangshare(capsys, "defrag", *asked, "--apply", "--server", status_port.url)
    assert (ran.code, ran.out) == (1, f"{why}\n")


def test_json_is_what_the_status_port_says(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    status_port.answers[PATH] = json.dumps(PLAN).encode()
    ran = gangshare(capsys, "defrag", "--for", "train", "-o", "json", "--server", status_port.url)
    assert json.loads(ran.out) == PLAN


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--for", "a/b/c"], "error: --for is 'a/b/c': expected NAME or NAMESPACE/NAME\n"),
        (["--for", "nobody"], "error: --for is default/nobody: expected a pending pod or gang\n"),
    ],
)
def test_nobody_is_an_error(
    status_port: StatusPort, capsys: pytest.CaptureFixture[str], asked: list[str], said: str
) -> None:
    ran = gangshare(capsys, "defrag", *asked, "--server", status_port.url)
    assert (ran.code, ran.err) == (1, said)


def test_explain_and_top_show_what_is_kept(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = {"namespace": "default", "name": "train", "uid": "u", "sentence": "no node with 2 whole GPUs free"}
    kept = {"node": "node-a", "gpus": [0, 1], "complete": False, "seconds": 290.0}
    lines = {}
    for complete in (False, True):
        told = {**waiting, "code": "NoRoom", "since": 30, "reservation": {**kept, "complete": complete}}
        status_port.answers["/explain/default/train"] = json.dumps(told).encode()
        lines[complete] = gangshare(capsys, "explain", "pod", "train", "--server", status_port.url).out.splitlines()[-1]
    assert lines == {
        False: "  node-a GPU 0 and 1 is reserved for it for 4m50s: not all of it is free yet",
        True: "  node-a GPU 0 and 1 is reserved for it for 4m50s: all of it is free",
    }
    holder = {**a_holder("train", mem=4), "reserved": True}
    node = a_node("node-a", a_gpu(0, "GPU-a0", memUsed=4, pods=[holder]))
    status_port.answers["/inspect"] = json.dumps({"nodes": [node]}).encode()
    shown = gangshare(capsys, "top", "--pods", "--server", status_port.url).out
    assert "default/train (pending, reserved)" in shown


# -- disruption budgets


def a_pod(name: str, namespace: str = "default", phase: str = "Running", **labels: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), status=PodStatus(phase=phase))


def a_budget(name: str, allowed: int, selector: Selector | None) -> Budget:
    return Budget(ObjectMeta(name=name, namespace="default"), Spec(selector), Status(allowed))


WEB = Selector(match_labels={"app": "web"})


def test_a_budget_counts_all_its_pods_together() -> None:
    pods = [a_pod("a", app="web"), a_pod("b", app="web"), a_pod("c", app="db")]
    assert forbidden(pods, [a_budget("web", 2, WEB)]) == []
    assert forbidden(pods, [a_budget("web", 1, WEB)]) == [
        "PodDisruptionBudget default/web allows 1 eviction, and the moves are 2 of its pods: default/a, default/b"
    ]
    assert forbidden(pods, [a_budget("web", 0, None)]) == []
    assert len(forbidden(pods, [a_budget("all", 2, Selector())])) == 1
    other = Selector(match_expressions=(Requirement("app", "NotIn", ("web",)),))
    assert len(forbidden(pods, [a_budget("others", 0, other)])) == 1


def test_pods_elsewhere_or_not_running_are_none_of_its() -> None:
    pods = [a_pod("a", namespace="ml", app="web"), a_pod("b", phase="Pending", app="web")]
    assert forbidden(pods, [a_budget("web", 0, WEB)]) == []


def test_a_pod_of_two_budgets_cannot_be_evicted() -> None:
    assert forbidden([a_pod("a", app="web")], [a_budget("web", 1, WEB), a_budget("all", 1, Selector())]) == [
        "default/a is guarded by default/web and default/all: then no eviction passes"
    ]
