"""Formats of answers, tables that fit a terminal, and `--watch`."""

from __future__ import annotations

import json
import sys
import time

import pytest
import yaml

from extender.cli import console, show
from tests.unit.cli import books
from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import Ran, gangshare

POD = books.BOOKS["waiting"][0]
RUNS = {**books.BOOKS["pods"][0], "verdict": {"state": "running", "headline": "runs on node-a"}}
WAITS = {**POD, "verdict": {"state": "waiting", "headline": "waits for free GPUs (NoRoom)"}}
SOON = {**POD, "verdict": {"state": "starting", "headline": "starts soon on node-a"}}


def told(port: StatusPort, capsys: pytest.CaptureFixture[str], *args: str) -> Ran:
    return gangshare(capsys, *args, "--server", port.url)


def test_yaml_says_what_json_says(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(status_port, capsys, "top", "-o", "yaml").out
    assert yaml.safe_load(said) == json.loads(told(status_port, capsys, "top", "-o", "json").out) == books.BOOKS


@pytest.mark.parametrize("command", ["top", "queues", "classes"])
def test_every_view_takes_every_format(
    command: str, status_port: StatusPort, capsys: pytest.CaptureFixture[str]
) -> None:
    status_port.answers |= {"/queues": b'{"queues":[]}', "/classes": b'{"classes":[]}'}
    for form in ("table", "wide", "json", "yaml"):
        assert told(status_port, capsys, command, "-o", form).code == 0


def a_table() -> console.Columns:
    table = console.columns("NAME", "MODEL", "FREE", "WHY")
    table.add_row("n" * 60, "NVIDIA " + "m" * 60, "12", "one two three " * 10)
    return table


def test_a_table_is_as_wide_as_the_terminal_and_its_wide_columns_are_cut() -> None:
    lines = console.page(a_table(), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" in lines[1]
    assert "  12  " in lines[1]
    assert " ".join(line[60:].strip() for line in lines[1:]).count("three") <= 10
    assert len(lines) > 2


def test_a_page_in_a_pipe_is_not_cut() -> None:
    lines = console.page(a_table()).splitlines()
    assert len(lines) == 2
    assert "n" * 60 in lines[1]
    assert lines[1].endswith("one two three")


class Port:
    """Answers in turn; the last one stays."""

    def __init__(self, port: StatusPort, path: str, *answers: dict[str, object]) -> None:
        self._port, self._path, self._answers = port, path, list(answers)
        self.sleeps = 0
        self._next()

    def _next(self) -> None:
        self._port.answers[self._path] = json.dumps(self._answers.pop(0)).encode()

    def sleep(self, seconds: float) -> None:
        assert seconds == show.EVERY_S
        self.sleeps += 1
        self._next()


@pytest.fixture
def watched(status_port: StatusPort, monkeypatch: pytest.MonkeyPatch) -> Port:
    port = Port(status_port, "/explain/ml/hungry", WAITS, {**WAITS, "since": 190.0}, SOON, {**RUNS, "node": ""})
    monkeypatch.setattr(time, "sleep", port.sleep)
    return port


def test_a_watch_tells_each_verdict_once_until_the_pod_runs(
    watched: Port, status_port: StatusPort, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = told(status_port, capsys, "explain", "pod", "ml/hungry", "--watch", "-o", "json")
    pages = ran.out.replace("}\n\n{", "}\0{").split("\0")
    assert [json.loads(page)["verdict"]["state"] for page in pages] == ["waiting", "starting", "running"]
    assert (ran.code, watched.sleeps) == (0, 3)


def test_a_watch_on_a_terminal_shows_the_page_anew(
    watched: Port, status_port: StatusPort, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    ran = told(status_port, capsys, "explain", "pod", "ml/hungry", "-w")
    assert ran.out.count(show.CLEAR) == 4


def test_yaml_pages_of_a_watch_are_documents(
    watched: Port, status_port: StatusPort, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(status_port, capsys, "explain", "pod", "ml/hungry", "-w", "-o", "yaml").out
    assert [page["verdict"]["state"] for page in yaml.safe_load_all(found)] == ["waiting", "starting", "running"]
