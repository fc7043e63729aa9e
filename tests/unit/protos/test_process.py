"""A process ends on SIGTERM while it starts, though the kernel gives the first of a container no default."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protos.process import ENDED

PROCESSES = {
    "deviceplugin": [],
    "deviceplugin.limits": [],
    "deviceplugin.mps": [],
    "deviceplugin.partitioner": [],
    "deviceplugin.usage": [],
    "extender": ["extender"],
}


@pytest.mark.parametrize(("module", "arguments"), PROCESSES.items(), ids=str)
def test_sigterm_ends_a_process_that_still_imports(tmp_path: Path, module: str, arguments: list[str]) -> None:
    """Its own handler ends it: the default would show as -15."""
    held = "uvicorn" if module == "extender" else "structlog"
    (tmp_path / f"{held}.py").write_text("import time\nprint('imports', flush=True)\ntime.sleep(600)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "imports\n"
        process.terminate()
        assert process.wait(timeout=30) == ENDED
    finally:
        process.kill()
        process.communicate()
