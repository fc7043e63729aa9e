"""`gangshare explain node|queue|gpu`."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from extender.cli import console, explain_places
from extender.wire.answers import GpuPage, NodePage
from extender.wire.listings import QueuePage
from tests.unit.cli import books
from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import gangshare

NODE = books.BOOKS["nodes"][0]
TAKES = {"state": "open", "headline": "takes new pods: 0 of 2 GPUs wholly free", "advice": "nothing"}
QUEUE = {
    "name": "research", "verdict": {"headline": "is open: 7 pods run, 3 wait", "advice": "nothing"},
    "waiting": 3, "running": 7, "inLine": 7, "fairShare": {"gpus": "8"},
    "line": [{"who": "gang ml/a", "seconds": 60}, {"who": "ml/b", "seconds": 9}],
    "first": {"who": "gang ml/a", "seconds": 720, "nodes": ["n1"]},
}  # fmt: skip


def node(**said: Any) -> list[str]:
    return console.page(
        *explain_places.node(msgspec.convert({**NODE, "verdict": TAKES, **said}, NodePage))
    ).splitlines()


def test_a_node_is_told_by_its_verdict_then_its_gpus_and_their_pods() -> None:
    found = node(free={"cpu": "12", "memory": "100Gi"})
    assert found[:4] == [
        "node-a takes new pods: 0 of 2 GPUs wholly free",
        "  what to do: nothing",
        "  free beside GPUs: 12 cpu, 100Gi memory",
        "",
    ]
    assert found[6].split() == ["└", "default/train", "10", "GiB", "25"]
    assert found[-2:] == ["GPU 0: GPU-a0", "GPU 1: GPU-a1"]


def test_a_node_without_gpus_has_no_table() -> None:
    assert node(gpus=[]) == ["node-a takes new pods: 0 of 2 GPUs wholly free", "  what to do: nothing"]


def test_a_gpu_is_told_with_its_pods() -> None:
    verdict = {"headline": "takes new pods: 69 of 79 units free, used by 1", "advice": "nothing"}
    page = msgspec.convert({"node": "node-a", "gpu": NODE["gpus"][0], "verdict": verdict}, GpuPage)
    first, _, uuid, _, _, row, pod = console.page(*explain_places.gpu(page)).splitlines()
    assert first == "GPU 0 of node-a takes new pods: 69 of 79 units free, used by 1"
    assert uuid == "  UUID: GPU-a0"
    assert row.split()[:2] == ["node-a", "0"]
    assert "default/train" in pod


def test_a_queue_is_told_with_the_first_of_its_line() -> None:
    found = console.page(*explain_places.queue(msgspec.convert(QUEUE, QueuePage))).splitlines()
    assert found[:5] == [
        "queue research is open: 7 pods run, 3 wait",
        "  what to do: nothing",
        "  first of 7 pending workloads: gang ml/a (1m), ml/b (9s), and 5 more",
        "  gang ml/a starts in 12m at the earliest, on n1",
        "",
    ]
    assert found[6].split()[:3] == ["research", "gpus", "8"]


@pytest.mark.parametrize(
    ("what", "name", "path", "body"),
    [
        ("node", "node-a", "/inspect/node-a", {**NODE, "verdict": TAKES}),
        ("gpu", "GPU-a0", "/gpus/GPU-a0", {"node": "node-a", "gpu": NODE["gpus"][0]}),
        ("queue", "research", "/queues/research", QUEUE),
    ],
)
def test_the_command_reads_its_page_and_names_what_is_unknown(
    what: str, name: str, path: str, body: Any, status_port: StatusPort, capsys: pytest.CaptureFixture[str]
) -> None:
    status_port.answers[path] = json.dumps(body).encode()
    assert name in gangshare(capsys, "explain", what, name, "--server", status_port.url).out
    found = gangshare(capsys, "explain", what, name, "-o", "json", "--server", status_port.url)
    assert json.loads(found.out) == json.loads(json.dumps(body))
    missing = gangshare(capsys, "explain", what, "nobody", "--server", status_port.url)
    assert missing.code == 1
    assert "'nobody' not found" in missing.err
