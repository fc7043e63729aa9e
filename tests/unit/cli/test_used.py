"""`gangshare top --used` and `gangshare idle`: pages of the measuring processes through the API server's proxy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protos.contract import names
from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import Ran, gangshare

GIB = 2**30
PODS = f"/api/v1/namespaces/{names.NAMESPACE}/pods"
LISTED = f"{PODS}?labelSelector=app.kubernetes.io%2Fname%3Dgangshare-usage"
LEVEL = "memory promised, compute promised"


def a_use(pod: str, used: float | None, promised: float, idle: float | None = 0, **more: Any) -> dict[str, Any]:
    usual = {
        "namespace": "default", "pod": pod, "uid": f"u-{pod}", "container": "main", "uuid": "GPU-a0", "gpu": 0,
        "asks": True, "promised": int(promised * GIB), "level": LEVEL, "processes": 1,
    }  # fmt: skip
    told = {"used": None if used is None else int(used * GIB), "idle": idle, "sm": 0.25}
    return {**usual, **told, **more}


OUTSIDE = {"container": "-", "uuid": "GPU-a0", "gpu": 0, "used": GIB, "processes": 1}
PAGE = {
    "node": "node-a",
    "uses": [a_use("train", 12, 10), a_use("big", 2, 79, 7200, gpu=1, whole=True, owner="Job/big"), OUTSIDE],
    "troubles": ["GPU GPU-a2: NVML does not tell its processes (GPU is lost)"],
}


def a_pod(name: str, node: str, phase: str = "Running") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name}, "spec": {"nodeName": node}, "status": {"phase": phase}}


@pytest.fixture
def api(status_port: StatusPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatusPort:
    """An API server with two measuring pods, of which one answers, and a status port with books."""
    listed = {"items": [a_pod("usage-1", "node-a"), a_pod("usage-2", "node-c"), a_pod("usage-0", "node-a", "Failed")]}
    status_port.answers |= {
        LISTED: json.dumps(listed).encode(),
        f"{PODS}/usage-1/proxy/usage": json.dumps(PAGE).encode(),
    }
    monkeypatch.setenv("KUBECONFIG", str(status_port.write_kubeconfig(tmp_path / "config")))
    return status_port


def run(capsys: pytest.CaptureFixture[str], api: StatusPort, *args: str) -> Ran:
    return gangshare(capsys, *args, "--server", api.url)


def rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


def test_it_shows_use_beside_promise_and_what_was_not_measured(
    capsys: pytest.CaptureFixture[str], api: StatusPort
) -> None:
    ran = run(capsys, api, "top", "--used")
    assert ran.code == 0, ran
    first, _, head, *table = ran.out.splitlines()
    assert first == "2 containers with GPUs: 14.0 GiB used of 89.0 GiB promised; 1 over promise"
    assert head.split() == ["NODE", "GPU", "POD", "CONTAINER", "QUEUE", "USED", "PROMISED", "SM", "IDLE", "LEVEL"]
    assert [line.split()[:12] for line in table[:3]] == [
        ["node-a", "0", "-", "-", "-", "1.0", "GiB", "-", "-", "-", "-"],
        ["node-a", "0", "default/train", "main", "research", "12.0", "GiB", "10.0", "GiB", "25", "%", "0s"],
        ["node-a", "1", "default/big", "main", "-", "2.0", "GiB", "79.0", "GiB", "25", "%", "2h"],
    ]
    assert table[4:] == [
        "node node-a: GPU GPU-a2: NVML does not tell its processes (GPU is lost)",
        f"node node-c was not measured: GET {PODS}/usage-2/proxy/usage: 404",
        "node node-b was not measured: no pod gangshare-usage runs there",
    ]


@pytest.mark.parametrize(
    ("args", "pods"),
    [
        (("--queue", "research"), ["default/train"]),
        (("--namespace", "other"), []),
        (("--node", "node-b"), []),
        (("--sort", "used"), ["default/train", "default/big", "-"]),
        (("--sort", "free"), ["default/big", "-", "default/train"]),
    ],
)
def test_it_is_narrowed_and_sorted_as_top_is(
    capsys: pytest.CaptureFixture[str], api: StatusPort, args: tuple[str, ...], pods: list[str]
) -> None:
    ran = run(capsys, api, "top", "--used", *args)
    assert [row[2] for row in rows(ran.out)[3:] if row[:1] == ["node-a"]] == pods


def test_sums_of_queues_and_json(capsys: pytest.CaptureFixture[str], api: StatusPort) -> None:
    found = rows(run(capsys, api, "top", "--used", "--by", "queue").out)
    assert found[2] == ["QUEUE", "USED", "PROMISED", "SM", "PODS", "OVER"]
    assert found[4] == ["research", "12.0", "GiB", "10.0", "GiB", "25", "%", "1", "1"]
    shown = json.loads(run(capsys, api, "top", "--used", "-o", "json").out)
    assert {use["node"] for use in shown["uses"]} == {"node-a"}
    assert shown["nodes"] == ["node-a"]


@pytest.mark.parametrize(
    ("least", "pods"), [("30m", ["default/big"]), ("0", ["default/big", "default/train"]), ("3h", [])]
)
def test_idle_holders_are_those_that_did_nothing_for_so_long(
    capsys: pytest.CaptureFixture[str], api: StatusPort, least: str, pods: list[str]
) -> None:
    ran = run(capsys, api, "idle", "--for", least)
    assert [row[0] for row in rows(ran.out) if row and row[0].startswith("default/")] == pods
    if least == "30m":
        assert "1 container idle for 30m or longer, holding 79.0 GiB" in ran.out
        assert "Job/big" in ran.out


def test_a_wrong_duration_is_told(capsys: pytest.CaptureFixture[str], api: StatusPort) -> None:
    ran = run(capsys, api, "idle", "--for", "soon")
    assert (ran.code, ran.err) == (1, "error: --for is 'soon': expected a duration like 600s, 10m or 1h30m\n")


@pytest.mark.parametrize("command", [("top", "--used"), ("idle",)])
def test_without_the_component_they_say_how_to_install_it(
    capsys: pytest.CaptureFixture[str], api: StatusPort, command: tuple[str, ...]
) -> None:
    api.answers[LISTED] = b'{"items": []}'
    ran = run(capsys, api, *command)
    assert ran.code == 2
    assert "is not measured" in ran.err
    assert "manifests/components/usage" in ran.err


@pytest.mark.parametrize("answer", [None, b"{", b'{"node": 3}', b"[" * 10_000])
def test_if_no_node_answers_it_says_what_to_look_at(
    capsys: pytest.CaptureFixture[str], api: StatusPort, answer: bytes | None
) -> None:
    api.answers.pop(f"{PODS}/usage-1/proxy/usage")
    if answer is not None:
        api.answers[f"{PODS}/usage-1/proxy/usage"] = answer
    ran = run(capsys, api, "top", "--used")
    assert ran.code == 1
    assert "node node-a was not measured" in ran.err
    assert "gangshare-usage-viewer" in ran.err


def test_what_tenants_wrote_is_made_printable(capsys: pytest.CaptureFixture[str], api: StatusPort) -> None:
    page = {"node": "node-a", "uses": [a_use("p", 1, 1, queue="\x1b[31mred")]}
    api.answers[f"{PODS}/usage-1/proxy/usage"] = json.dumps(page).encode()
    assert "\x1b" not in run(capsys, api, "top", "--used").out


def test_another_namespace_is_named_by_a_variable(
    capsys: pytest.CaptureFixture[str], api: StatusPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answers = {path.replace(names.NAMESPACE, "gpus"): answer for path, answer in api.answers.items()}
    assert run(capsys, api, "top", "--used").code != 0
    monkeypatch.setenv(names.NAMESPACE_VARIABLE, "gpus")
    assert run(capsys, api, "top", "--used").code == 0
