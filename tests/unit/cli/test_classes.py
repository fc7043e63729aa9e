"""`gangshare classes` shows what there is to ask for."""

import json

import pytest

from extender.cli import classes, console, inspection
from extender.wire.listings import Classes
from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import gangshare

TOLD = {
    "classes": [
        {
            "name": "large",
            "description": "for training",
            "problem": None,
            "gpus": 8,
            "free": 3,
            "nodes": 1,
            "waiting": 2,
        },
        {"name": "odd", "description": "", "problem": "spec cannot be read", "gpus": 0, "free": 0, "nodes": 0},
    ],
    "missing": [{"name": "huge", "waiting": 1}],
    "models": [
        {
            "model": "NVIDIA A100-SXM4-80GB",
            "mem": 79,
            "memMiB": 81559,
            "clockMHz": 1410,
            "computeCapability": "8.0",
            "gpus": 8,
            "free": 3,
            "nodes": 1,
        },
        {"model": "", "mem": 15, "memMiB": 0, "clockMHz": 0, "computeCapability": "", "gpus": 4, "free": 4, "nodes": 2},
    ],
}


def page(told: object) -> list[list[str]]:
    found = inspection.decode(json.dumps(told).encode(), Classes)
    return [line.split() for line in console.page(*classes.render(found)).splitlines()]


def test_classes_come_first_and_those_that_are_missing_last_of_them() -> None:
    large, odd, huge = page(TOLD)[1:4]
    assert large == ["large", "8", "3", "1", "2", "for", "training"]
    assert odd == ["odd", "0", "0", "0", "0", "spec", "cannot", "be", "read"]
    assert huge == ["huge", "-", "-", "-", "1", "does", "not", "exist"]


def test_every_kind_of_gpu_has_a_row() -> None:
    known, unknown = page(TOLD)[-2:]
    assert known == [
        *("NVIDIA", "A100-SXM4-80GB", "81559", "MiB", "(79)", "1410", "MHz", "8.0"),
        *("8", "3", "1"),
    ]
    assert unknown == ["unknown", "15", "-", "-", "4", "4", "2"]


def test_a_cluster_without_gpus_says_so() -> None:
    assert page({}) == [["no", "GPUs"]]


def test_the_command_asks_the_status_port(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    status_port.answers["/classes"] = json.dumps(TOLD).encode()
    assert "large" in gangshare(capsys, "classes", "--server", status_port.url).out
    ran = gangshare(capsys, "classes", "--server", status_port.url, "-o", "json")
    assert json.loads(ran.out) == TOLD
