"""`gangshare queue` and `gangshare move` as command lines: what they send, and what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protos.contract import names, queue
from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import Ran, gangshare

BY = f"fieldManager={names.COMMANDS}"
QUEUES = f"/apis/{queue.API_VERSION}/queues"
SPEC = {
    "capability": {"gpus": "8", "cpu": "64"},
    "guarantee": {"gpus": "2"},
    "parent": "research",
    "weight": 3,
    "namespaces": ["vision", "vision-dev"],
}


class Api:
    """An API server that is also the status port, and the command with its kubeconfig."""

    def __init__(self, port: StatusPort, capsys: pytest.CaptureFixture[str], kubeconfig: Path) -> None:
        self.port, self._capsys, self._kubeconfig = port, capsys, str(port.write_kubeconfig(kubeconfig))

    def run(self, *args: str) -> Ran:
        return gangshare(self._capsys, *args, "--kubeconfig", self._kubeconfig)

    def answers(self, path: str, **body: Any) -> None:
        self.port.answers[path] = json.dumps(body).encode()

    def refuses(self, code: int, path: str, reason: str, message: str) -> None:
        self.port.code = code
        self.answers(path, kind="Status", reason=reason, message=message)


@pytest.fixture
def api(status_port: StatusPort, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Api:
    return Api(status_port, capsys, tmp_path / "config")


def test_a_queue_is_created_from_options(api: Api) -> None:
    api.answers(f"{QUEUES}?{BY}", metadata={"name": "vision", "managedFields": []}, spec=SPEC)
    limits = ["--capability", "gpus=8,cpu=64", "--guarantee", "gpus=2", "--weight", "3"]
    more = ["--parent", "research", "--default-for", "vision", "--default-for", "vision-dev"]
    ran = api.run("queue", "create", "vision", *limits, *more)
    assert ran == (0, "queue vision is created\n", "")
    sent = {"apiVersion": queue.API_VERSION, "kind": "Queue", "metadata": {"name": "vision"}, "spec": SPEC}
    assert api.port.written == [("POST", f"{QUEUES}?{BY}", sent)]
    ran = api.run("queue", "create", "vision", "-o", "json")
    assert json.loads(ran.out) == {"metadata": {"name": "vision"}, "spec": SPEC}


def test_a_dry_run_has_the_api_server_check_it(api: Api) -> None:
    api.answers(f"{QUEUES}?{BY}&dryRun=All", metadata={"name": "vision"})
    assert api.run("queue", "create", "vision", "--dry-run").out == "queue vision would be created\n"


def test_a_wrong_amount_is_told_and_nothing_is_sent(api: Api) -> None:
    ran = api.run("queue", "create", "vision", "--capability", "8")
    assert ran == (1, "", "error: --capability is '8': expected RESOURCE=AMOUNT, as in gpus=8,cpu=64\n")
    assert not api.port.written


def test_a_queue_is_stopped_and_resumed(api: Api) -> None:
    api.answers(f"{QUEUES}/vision?{BY}")
    assert "vision is closed: no workload starts in it" in api.run("queue", "stop", "vision").out
    assert "vision is open" in api.run("queue", "resume", "vision").out
    path = f"{QUEUES}/vision?{BY}"
    assert api.port.written == [("PATCH", path, {"spec": {"closed": closed}}) for closed in (True, False)]


@pytest.mark.parametrize(
    ("code", "reason", "message", "said"),
    [
        (403, "Forbidden", "ada cannot patch it", "the API server refuses: ada cannot patch it"),
        (404, "NotFound", 'queues.gangshare.io "vision" not found', 'queues.gangshare.io "vision" not found'),
        (409, "Conflict", "the object has been modified", "it was changed or replaced meanwhile: try again"),
        (422, "Invalid", "spec.closed: Invalid value", "the API server refuses: spec.closed: Invalid value"),
        (503, "ServiceUnavailable", "etcd is away", "the API server does not answer (etcd is away)"),
    ],
)
def test_a_refusal_is_one_sentence(api: Api, code: int, reason: str, message: str, said: str) -> None:
    api.refuses(code, f"{QUEUES}/vision?{BY}", reason, message)
    ran = api.run("queue", "stop", "vision")
    assert ran == (1, "", f"error: queue 'vision' cannot be stopped: {said}\n")


def test_a_pod_is_moved_and_the_command_waits_for_the_extender(api: Api) -> None:
    pod = {"namespace": "ml", "name": "p", "uid": "u", "takes": {"gpus": "1"}}
    api.answers("/explain/ml/p", **pod, queue="research")
    api.answers("/queues", queues=[{"name": "research"}, {"name": "vision", "capability": {"gpus": "1"}}])
    api.answers("/api/v1/namespaces/ml/pods/p", metadata={"name": "p", "namespace": "ml", "uid": "u"})
    api.answers(f"/api/v1/namespaces/ml/pods/p?{BY}")
    asked = ["move", "pod", "p", "-n", "ml", "--server", api.port.url, "--queue"]
    assert api.run(*asked, "research") == (0, "pod ml/p is in queue research\n", "")
    assert not api.port.written
    api.answers("/explain/ml/p", **{**pod, "takes": {"gpus": "2"}}, queue="research")
    assert "queue vision may have 1 GPUs, and it asks 2" in api.run(*asked, "vision").err
    api.answers("/explain/ml/p", **pod, queue="")
    assert api.run(*asked, "nowhere").err == "error: queue 'nowhere' not found: `gangshare queues` shows all queues\n"
    assert not api.port.written


def test_a_gang_without_its_members_is_not_moved_by_half(api: Api) -> None:
    api.answers("/explain/groups/ml/g", namespace="ml", name="g", phase="Waiting", present=4000)
    ran = api.run("move", "group", "ml/g", "--queue", "vision", "--server", api.port.url)
    assert ran == (1, "", "error: gang ml/g has 4000 members: only the status port names so many\n")
