"""Without a port-forward the commands ask the aggregated API, with the user's own kubeconfig."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from extender.cli import console, inspection, through_api
from extender.cli.options import port_forward
from protos.contract import names
from tests.unit.cli import books
from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import Ran, gangshare

CLOSED = "http://127.0.0.1:1"
BASE = f"/apis/{names.VISIBILITY_GROUP}/{names.VISIBILITY_VERSION}"
WAITING = {
    "namespace": "team-a",
    "name": "p",
    "uid": "u",
    "state": "waiting",
    "code": "NoRoom",
    "sentence": "no GPU free",
}
GPU = {
    **books.a_gpu(0, "GPU-a0", memUsed=4, pods=[books.a_holder("mine", mem=2)]),
    "node": "node-a",
    "unitMiB": 1024,
    "slices": 50,
    "verdict": {"state": "open", "headline": "takes new pods", "advice": "nothing"},
    "otherPods": 3,
}
QUEUE = {
    "name": "research",
    "verdict": {"state": "closed", "headline": "is closed", "advice": "open it"},
    "inLine": 3,
    "line": [{"who": "another namespace", "seconds": 60}, {"who": "team-a/p", "seconds": 5}],
    "pending": [{"place": 2, "kind": "Pod", "namespace": "team-a", "name": "p"}],
}
OFFERS: dict[str, dict[str, Any]] = {
    "gpuClass": {"name": "large", "gpus": 8, "description": "for training"},
    "missing": {"name": "huge", "waiting": 2},
    "model": {"model": "NVIDIA H200", "mem": 141, "gpus": 8},
}
PLAN = {"for": "team-a/p", "fits": True, "verdict": "it fits without a move", "moves": [], "rooms": []}
GANG = {"namespace": "team-a", "name": "g", "phase": "Waiting", "sentence": "no room"}


def a_list(*statuses: dict[str, Any]) -> bytes:
    return json.dumps({"items": [{"status": status} for status in statuses]}).encode()


@pytest.fixture
def api(status_port: StatusPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatusPort:
    """An API server in the kubeconfig, and nobody at the default server."""
    status_port.answers = {
        f"{BASE}/namespaces/team-a/gpupods/p": json.dumps({"status": WAITING}).encode(),
        f"{BASE}/namespaces/team-a/gangs/g": json.dumps({"status": GANG}).encode(),
        f"{BASE}/gpuqueues": a_list({"name": "default", "waiting": 3}),
        f"{BASE}/gpunodes/node-a": json.dumps({"status": books.BOOKS["nodes"][0]}).encode(),
        f"{BASE}/gpunodes": a_list(*books.BOOKS["nodes"]),
        f"{BASE}/gpupods": a_list(*books.BOOKS["pods"], WAITING),
        f"{BASE}/gangs": a_list(GANG),
        f"{BASE}/gpus": a_list(GPU),
        f"{BASE}/gpuqueues/research": json.dumps({"status": QUEUE}).encode(),
        f"{BASE}/gpuoffers": a_list(*({kind: each} for kind, each in OFFERS.items())),
        f"{BASE}/namespaces/team-a/defragplans/p?max-moves=8&keep=team-a%2Fq": json.dumps({"status": PLAN}).encode(),
    }
    monkeypatch.setenv("KUBECONFIG", str(status_port.write_kubeconfig(tmp_path / "config")))
    monkeypatch.setattr(inspection, "DEFAULT_SERVER", CLOSED)
    return status_port


def run(capsys: pytest.CaptureFixture[str], *args: str) -> Ran:
    return gangshare(capsys, *args, "--server", CLOSED)


def test_a_pod_and_a_gang_are_explained(api: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "explain", "pod", "team-a/p")
    assert (ran.code, ran.err) == (0, "")
    assert "no GPU free" in ran.out
    ran = run(capsys, "explain", "group", "team-a/g")
    assert (ran.code, "no room" in ran.out) == (0, True)


def test_top_and_queues_show_what_the_status_port_would(api: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "top", "-o", "json")
    assert ran.code == 0
    told = json.loads(ran.out)
    assert [node["name"] for node in told["nodes"]] == ["node-a", "node-b"]
    assert [pod["name"] for pod in told["waiting"]] == ["p"]
    assert len(told["pods"]) == len(books.BOOKS["pods"])
    assert told["groups"] == [GANG]
    assert json.loads(run(capsys, "queues", "-o", "json").out) == {"queues": [{"name": "default", "waiting": 3}]}
    assert json.loads(through_api.page("inspect/node-a", "") or b"") == books.BOOKS["nodes"][0]


def test_a_gpu_is_explained_and_pods_of_other_namespaces_are_counted(
    api: StatusPort, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(capsys, "explain", "gpu", "GPU-a0")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("GPU 0 of node-a takes new pods\n  what to do: nothing\n")
    assert "└ default/mine" in ran.out
    assert "└ 3 pods of other namespaces" in ran.out
    assert "/50" in ran.out
    ran = run(capsys, "explain", "gpu", "GPU-none")
    assert (ran.code, "GPU 'GPU-none' not found" in ran.err) == (1, True)


def test_a_queue_is_explained_with_the_first_in_it(api: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "explain", "queue", "research")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("queue research is closed\n  what to do: open it\n")
    assert "first of 3 pending workloads: another namespace (1m), team-a/p (5s), and 1 more" in ran.out


def test_classes_and_models_are_the_offers(api: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(run(capsys, "classes", "-o", "json").out)
    assert told == {"classes": [OFFERS["gpuClass"]], "missing": [OFFERS["missing"]], "models": [OFFERS["model"]]}


def test_a_plan_of_moves_is_asked_for_with_its_parameters(api: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "defrag", "--for", "team-a/p", "--keep", "team-a/q")
    assert (ran.code, ran.out, ran.err) == (0, "it fits without a move\n", "")


def test_who_may_not_see_all_pods_is_told_that_a_plan_needs_this(
    api: StatusPort, capsys: pytest.CaptureFixture[str]
) -> None:
    api.code = 403
    why = 'defragplans "p" is forbidden: it names pods of all namespaces, and User "ada" cannot list them'
    refused = {"kind": "Status", "reason": "Forbidden", "message": why}
    api.answers[f"{BASE}/namespaces/team-a/defragplans/p?max-moves=8"] = json.dumps(refused).encode()
    ran = run(capsys, "defrag", "--for", "team-a/p")
    assert (ran.code, f"the API server refuses: {why}" in ran.err) == (1, True)


def test_what_is_not_there_is_told_as_ever(api: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    api.code = 404
    missing = {"kind": "Status", "reason": "NotFound", "message": f'gpupods.{names.VISIBILITY_GROUP} "p" not found'}
    api.answers[f"{BASE}/namespaces/team-a/gpupods/p"] = json.dumps(missing).encode()
    ran = run(capsys, "explain", "pod", "team-a/p")
    assert (ran.code, "pod team-a/p not found" in ran.err) == (1, True)


def test_a_user_without_the_right_is_told_so(api: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    api.code = 403
    refused = {"kind": "Status", "reason": "Forbidden", "message": 'User "ada" cannot get resource "gpupods"'}
    api.answers[f"{BASE}/namespaces/team-a/gpupods/p"] = json.dumps(refused).encode()
    ran = run(capsys, "explain", "pod", "team-a/p")
    assert (ran.code, 'the API server refuses: User "ada" cannot get' in ran.err) == (1, True)


@pytest.mark.parametrize("command", [("explain", "pod", "p"), ("classes",)])
def test_without_the_api_the_command_says_how_to_reach_the_extender(
    api: StatusPort, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    api.answers.clear()
    ran = run(capsys, *command)
    assert (ran.code, "no extender answers" in ran.err, port_forward() in ran.err) == (1, True, True)
    assert "components/visibility" in ran.err, "what turns it on"


def test_an_api_that_fails_is_told_with_what_says_why(api: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    api.code = 503
    api.answers[f"{BASE}/namespaces/team-a/gpupods/p"] = b"error trying to reach service"
    ran = run(capsys, "explain", "pod", "team-a/p")
    assert ran.code == 1
    assert "the aggregated API fails" in ran.err
    assert f"kubectl get apiservice {names.VISIBILITY_API_SERVICE}" in ran.err
    assert port_forward() in ran.err


def test_a_warning_of_the_answer_is_told_once(api: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    console.warn.cache_clear()
    api.warning = '299 - "a \\"standby\\" answered", 299 - "\x85so it is"'
    ran = run(capsys, "top")
    assert (ran.code, ran.err) == (0, 'warning: a "standby" answered\nwarning: \N{REPLACEMENT CHARACTER}so it is\n')
    assert "node-a" in ran.out
    api.warning = "199 nonsense"
    assert run(capsys, "queues").err == ""


def test_another_server_that_does_not_answer_is_not_replaced(
    api: StatusPort, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = gangshare(capsys, "explain", "pod", "team-a/p", "--server", "http://127.0.0.1:2")
    assert (ran.code, "no extender answers" in ran.err) == (1, True)
