"""Runs the commands as users do: as a program of its own, in a pipe or on a terminal of 80 columns."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COLUMNS = 80
_CHUNK = 65_536


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def run(*args: str, env: Mapping[str, str] | None = None) -> Ran:
    """`gangshare` with these arguments, in a pipe."""
    done = subprocess.run(
        _argv(args), capture_output=True, text=True, cwd=ROOT, timeout=60, check=False, env=_environment(env)
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def on_a_terminal(*args: str) -> list[str]:
    """The lines that `gangshare` shows on a terminal."""
    ours, theirs = pty.openpty()
    environment = _environment({"COLUMNS": f"{COLUMNS}", "TERM": "dumb"})
    with subprocess.Popen(_argv(args), stdout=theirs, stderr=theirs, cwd=ROOT, env=environment) as child:
        os.close(theirs)
        text = _everything(ours)
        child.wait(60)
    assert child.returncode == 0, text
    return text.splitlines()


async def asked(server: str, *args: str) -> str:
    """What a command prints that asks this server and succeeds."""
    ran = await asyncio.to_thread(run, *args, "--server", server)
    assert ran.code == 0, ran
    return ran.out


def _everything(terminal: int) -> str:
    """What is written until the other side is closed."""
    read = b""
    try:
        while chunk := os.read(terminal, _CHUNK):
            read += chunk
    except OSError:  # Linux says so when the last writer is gone
        pass
    os.close(terminal)
    return read.decode()


def _argv(args: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "extender", *args]


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """The environment without what the commands read of it."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GANGSHARE_", "KUBECONFIG"))}
    return {**kept, **(more or {})}
