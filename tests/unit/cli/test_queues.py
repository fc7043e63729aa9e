"""`gangshare queues` shows the tree, and Kubernetes' quotas beside it."""

import json

import pytest

from extender.cli import console, inspection, queues
from extender.wire.listings import Queues
from protos.contract.objects import ObjectMeta
from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import gangshare

TOLD = {
    "queues": [
        {
            "name": "research", "depth": 0, "fairShare": {"gpus": "8"}, "allocated": {"gpus": "6.5", "cpu": "2"},
            "requested": {"gpus": "9"}, "capability": {"gpus": "8", "cpu": "64"}, "share": "0.81",
            "waiting": 3, "running": 7, "exceeded": "9 GPUs are in use, it may have 8 GPUs",
        },
        {
            "name": "vision", "depth": 1, "fairShare": {"gpus": "8"}, "share": "0.00", "closed": True,
            "misplaced": "its parent x does not exist: it hangs below the root",
            "strangers": {"waiting": 1, "running": 2, "namespaces": "mallory"},
        },
    ]
}  # fmt: skip


def page(*quotas: queues.Quota) -> list[list[str]]:
    found = inspection.decode(json.dumps(TOLD).encode(), Queues)
    return [line.split() for line in console.page(*queues.render(found, quotas)).splitlines()]


def test_a_queue_stands_below_the_one_above_it_with_what_it_has_of_each_resource() -> None:
    heads, research, cpu, vision, over, note, strangers = page()
    assert heads[:6] == ["QUEUE", "RESOURCE", "FAIR", "SHARE", "ALLOCATED", "REQUESTED"]
    assert research == ["research", "gpus", "8", "6.5", "9", "8", "0.81", "3", "7", "open"]
    assert cpu == ["cpu", "-", "2", "0", "64"]
    assert vision == ["vision", "gpus", "8", "0", "0", "-", "0.00", "0", "0", "closed"]
    assert note[:2] == ["vision:", "its"]
    assert " ".join(over) == "research: 9 GPUs are in use, it may have 8 GPUs"
    assert " ".join(strangers) == (
        "vision: 1 pending and 2 running pods name it from namespaces that it does not admit: mallory"
    )


def test_quotas_stand_beside_them() -> None:
    used = queues.Used(hard={"requests.nvidia.com/gpu": "4"}, used={"requests.nvidia.com/gpu": "3"})
    quota = queues.Quota(ObjectMeta(name="limit", namespace="vision"), used)
    assert page(quota)[-1] == ["vision", "limit", "requests.nvidia.com/gpu", "3", "4"]


def test_the_command_asks_the_status_port(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    status_port.answers["/queues"] = json.dumps(TOLD).encode()
    assert "  vision" in gangshare(capsys, "queues", "--server", status_port.url).out
    ran = gangshare(capsys, "queues", "--server", status_port.url, "-o", "json")
    assert json.loads(ran.out) == TOLD
