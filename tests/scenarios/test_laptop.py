"""The first ten minutes: `gangshare demo --empty` as a program of its own, and the commands of the page at it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.commands import ROOT
from tests.scenarios.typist import Typist

PAGE = "docs/laptop.md"


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables that the command prints."""
    shown = tmp_path_factory.mktemp("demo") / "page"
    with shown.open("wb") as output:
        argv = [sys.executable, "-m", "extender", "demo", "--empty"]
        demo = subprocess.Popen(argv, stdout=output, stderr=output, cwd=ROOT)
    end = time.monotonic() + 60
    while not (found := dict(re.findall(r"(KUBECONFIG|GANGSHARE_SERVER)=(\S+)", shown.read_text()))):
        assert demo.poll() is None, shown.read_text()
        assert time.monotonic() < end, shown.read_text()
        time.sleep(0.05)
    yield found
    demo.send_signal(signal.SIGINT)
    assert demo.wait(30) == 0
    assert not Path(found["KUBECONFIG"]).exists()


@pytest.mark.asyncio
async def test_the_first_ten_minutes(exports: dict[str, str], tmp_path: Path) -> None:
    typist = Typist(tmp_path, exports)
    await typist.follow(PAGE, "Look around", "dgx-a100", "8 nodes, 46 GPUs: 46 wholly free", "NVIDIA A10")
    _, _, pods, log = await typist.follow(PAGE, "Share a GPU", "created", "met", "default/share-", "GPU_MEM_MIB=5120")
    assert len({line.split()[-1] for line in pods.splitlines() if "default/share-" in line}) == 1, pods
    assert "NVIDIA_VISIBLE_DEVICES=GPU-" in log
    never = "never"
    await typist.follow(PAGE, "Ask for what does not exist", never, "created", never, "deleted")
    await typist.follow(PAGE, "Start a gang", "created", "3 of 4 members exist", "created", "runs with 4 members")
