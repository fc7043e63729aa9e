"""The partitioner's settings: what cannot be meant is refused before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from deviceplugin.partitioner.command import command
from deviceplugin.partitioner.journal import NAME

LONG = "/run/" + "x" * 200


def run(*args: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, args)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--gpus=GPU 0"], "--gpus has 'GPU 0': expected an index, a UUID like GPU-1c…, or all"),
        (["--gpus=0,-1"], "--gpus has '-1': expected an index"),
        (["--socket=here.sock"], "--socket is here.sock: expected an absolute path of at most"),
        ([f"--socket={LONG}"], "expected an absolute path of at most"),
        (["--fake=h100-mig-dynamic"], "--node-name"),
        (["--fake=no-such-profile", "--node-name=n"], "no-such-profile"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_named(args: list[str], sentence: str, tmp_path: Path) -> None:
    done = run(f"--state-dir={tmp_path}", *args)
    assert (done.exit_code, sentence in done.output) == (2, True), done.output


def test_a_state_dir_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(f"--state-dir={tmp_path / 'file'}")
    assert done.exit_code == 2
    assert f"--state-dir is {tmp_path / 'file'}: expected a folder" in done.output


def test_a_journal_that_cannot_be_read_ends_the_process_and_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{")
    done = run(f"--state-dir={tmp_path}")
    assert done.exit_code == 2
    assert "expected the instances of the partitioner" in done.output
    assert (tmp_path / NAME).read_text() == "{"
