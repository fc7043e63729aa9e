import os
import subprocess
import sys
from importlib import metadata

import pytest

from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import gangshare

COMMANDS = ("extender", "plugin", "scheduler-config", "top", "classes", "explain", "demo", "simulate", "defrag")


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    page = gangshare(capsys, "--help").out
    assert [name for name in COMMANDS if name not in page] == []


def test_it_also_runs_as_a_module_and_calls_itself_gangshare() -> None:
    ran = subprocess.run([sys.executable, "-m", "extender", "--help"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("Usage: gangshare ")


def test_kubectl_calls_it_kubectl_gangshare(capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "top", "--help", called="kubectl-gangshare")
    assert ran.out.startswith("Usage: kubectl gangshare top ")


def test_version_is_the_distribution_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert gangshare(capsys, "--version").out == f"gangshare {metadata.version('gangshare')}\n"


def test_help_imports_nothing_that_only_a_process_needs() -> None:
    heavy = ("fastapi", "uvicorn", "grpc", "aiohttp", "pynvml", "kubernetes", "rich.table", "yaml", "extender.sim")
    code = (
        "import sys; from extender.__main__ import app\n"
        "try: app(['--help'])\n"
        f"except SystemExit: print(sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr == "[]\n"


@pytest.mark.parametrize("command", ["extender", "plugin"])
def test_the_processes_read_their_own_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, command, "--help")
    assert ran.code == 0
    assert f"gangshare {command}" in ran.out
    assert "--kubeconfig" in ran.out


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "topp")
    assert ran.code == 2
    assert "topp" in ran.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("top -o yml", "--output is 'yml': expected table, wide, json or yaml; see 'gangshare top --help'"),
        ("defrag --for x --max-moves 99", "--max-moves is '99': expected less than or equal to 64"),
        ("simulate jobs --trace x --nodes y", "--nodes is 'y': expected a valid integer"),
        ("extender --log-level foo", "--log-level is 'foo': expected debug, info, warning or error"),
        ("extender --listen foo", "--listen: 'foo' is no address: expected host:port"),
        ("defrag", "Missing option '--for'; see 'gangshare defrag --help'"),
        ("top --nod a", "No such option: --nod"),
    ],
)
def test_an_error_of_a_command_line_is_one_plain_sentence(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = gangshare(capsys, *line.split())
    assert ran.code == 2
    assert ran.err.startswith(f"error: {told}")
    assert len(ran.err.splitlines()) == 1
    assert "Value error" not in ran.err


def test_a_long_value_is_cut_in_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(gangshare(capsys, "top", "-o", "x" * 9999).err) < 200


def test_a_group_of_commands_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "explain")
    assert ran.code == 2
    assert ran.err.startswith("Usage: gangshare explain")


def completed(line: str, **variables: str) -> list[str]:
    """What bash completes at the end of this line."""
    variables |= {"_GANGSHARE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    ran = subprocess.run(
        [sys.executable, "-m", "extender"], capture_output=True, text=True, check=True, env={**os.environ, **variables}
    )
    return ran.stdout.split()


def test_a_shell_completes_the_commands() -> None:
    assert completed("gangshare explain ") == ["pod", "group", "node", "queue", "gpu"]


def test_a_shell_completes_the_names_of_queues(status_port: StatusPort) -> None:
    status_port.answers["/queues"] = b'{"queues":[{"name":"research"},{"name":"rest"},{"name":"vision"}]}'
    for line in ("gangshare explain queue re", "gangshare top --queue re"):
        assert completed(line, GANGSHARE_SERVER=status_port.url) == ["research", "rest"]
        assert completed(line, GANGSHARE_SERVER="http://127.0.0.1:1") == []
