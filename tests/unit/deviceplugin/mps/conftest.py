"""A node with MPS: a made-up machine, the stand-in of the control program, and the component."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import pynvml
import pytest

from deviceplugin.mps import checks, exchange, processes, unit
from deviceplugin.mps.component import Component
from deviceplugin.mps.exchange import Holder, Holders, Process, Served, State
from deviceplugin.mps.gpus import Gpus
from deviceplugin.mps.settings import Settings
from tests.unit.deviceplugin.fake_nvml import FakeNvml, Gpu

STANDIN = Path(__file__).with_name("standin.py")
PATIENCE_S = 20.0


class MpsNvml(FakeNvml):
    """Also has compute modes and processes."""

    def __init__(self, *gpus: Gpu) -> None:
        super().__init__(*gpus)
        self.modes: dict[str, int] = {}
        self.pids: dict[str, list[int]] = {}

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Gpu:
        return next(gpu for gpu in self.gpus if gpu.get("uuid") == uuid)

    def nvmlDeviceGetComputeMode(self, gpu: Gpu) -> int:
        return self.modes.get(gpu.get("uuid"), int(pynvml.NVML_COMPUTEMODE_DEFAULT))

    def nvmlDeviceSetComputeMode(self, gpu: Gpu, mode: int) -> None:
        self.modes[gpu.get("uuid")] = mode

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: Gpu) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self.pids.get(gpu.get("uuid"), [])]

    def exclusive(self, uuid: str = "GPU-0") -> bool:
        return self.modes.get(uuid) == int(pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)


class World:
    """One node. `pods` maps the process ID of a client to the UID of its pod."""

    def __init__(self, folder: Path, protocol: Literal[2, 3]) -> None:
        self.folder, self.protocol = folder, protocol
        self.nvml = MpsNvml(Gpu(0))
        self.pods: dict[int, str] = {}
        self.program = folder / "control"
        self.program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {STANDIN} "$@"\n')
        self.program.chmod(0o755)
        self.left: set[Process] = set()

    def component(self, **more: Any) -> Component:
        given = {"mps_dir": self.folder, "control": str(self.program), "probe_s": 0.0, **more}
        client = (str(self.program), "client!", "once")
        return Component(Settings(**given), Gpus(self.nvml), client, lambda pid: self.pods.get(pid, ""), self.protocol)

    @asynccontextmanager
    async def running(self, **more: Any) -> AsyncIterator[Component]:
        stop = asyncio.Event()
        component = self.component(**more)
        task = asyncio.ensure_future(component.run(stop))
        try:
            yield component
        finally:
            stop.set()
            await task

    def hold(self, *holders: Holder) -> None:
        """The plugin says who holds GPUs."""
        exchange.write(self.folder, Holders(v=1, holders=holders))

    def state(self) -> State | None:
        state = exchange.read_state(self.folder)
        if state is not None:
            self.left |= {process for served in state.gpus.values() for process in served.processes}
        return state

    def served(self, uuid: str = "GPU-0") -> Served:
        state = self.state()
        return state.gpus.get(uuid, Served(phase="starting")) if state else Served(phase="starting")

    async def until(self, met: Callable[[Served], bool], uuid: str = "GPU-0") -> Served:
        """The state of a GPU once it is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not met(self.served(uuid)):  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.02)
        return self.served(uuid)

    async def phase(self, phase: str, uuid: str = "GPU-0") -> Served:
        return await self.until(lambda served: served.phase == phase, uuid)

    async def admitted(self, *holders: Holder) -> dict[str, str]:
        keys = {holder.key for holder in holders}
        return (await self.until(lambda served: served.phase == "serving" and served.admitted.keys() == keys)).admitted

    def unkind(self, name: str, on: bool = True, uuid: str = "GPU-0") -> None:
        """Make the stand-in of this GPU unkind, or kind again."""
        file = exchange.folder_of(self.folder, uuid) / "log" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch() if on else file.unlink()

    def commands(self, uuid: str = "GPU-0") -> list[str]:
        file = exchange.folder_of(self.folder, uuid) / "log" / "commands"
        return file.read_text().splitlines() if file.exists() else []

    @asynccontextmanager
    async def client(self, pipes: str, pod: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
        """A process that is connected to MPS."""
        log = exchange.folder_of(self.folder, "GPU-0") / "log"
        process = await asyncio.create_subprocess_exec(
            str(self.program),
            "client!",
            env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_LOG_DIRECTORY": str(log)},
            stdout=asyncio.subprocess.PIPE,
        )
        self.pods[process.pid] = pod
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        return (await process.stdout.readline()).decode().strip()


def a_holder(pod: str = "p", container: str = "main", **more: Any) -> Holder:
    return Holder(**{"pod": pod, "container": container, "gpu": "GPU-0", "mps": True, **more})


def replaced(holder: Holder, **more: Any) -> Holder:
    return msgspec.structs.replace(holder, **more)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines and pauses of tests."""
    for module, name, seconds in (
        ("control", "ANSWER_S", 2.0),
        ("daemon", "START_S", 6.0),
        ("daemon", "QUIT_S", 2.0),
        ("component", "READ_S", 0.1),
    ):
        monkeypatch.setattr(f"deviceplugin.mps.{module}.{name}", seconds)
    monkeypatch.setattr(unit, "CHECK_S", 0.3)
    monkeypatch.setattr(unit, "LOOK_S", 0.05)
    monkeypatch.setattr(unit, "END_LOOK_S", 0.1)
    monkeypatch.setattr(unit, "FIRST_PAUSE_S", 0.2)
    monkeypatch.setattr(checks, "PATIENCE_S", 0.5)
    monkeypatch.setattr(checks, "PROBE_S", 2.0)


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def world(request: pytest.FixtureRequest, quick: None) -> Iterator[World]:
    """A node whose paths are short enough for sockets. Whatever a test leaves running is ended by its ID."""
    folder = Path(tempfile.mkdtemp(prefix="mps", dir="/tmp"))
    found = World(folder, request.param)
    yield found
    with suppress(Exception):
        found.state()
    for process in filter(processes.alive, found.left):
        os.kill(process.pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
