"""What the page costs the leader while ten viewers have it open, at 5,000 nodes of 8 GPUs and 20,000 bound pods.

One process serves the aggregated API as the extender does, and pods come and go in it all the time. In other processes
ten servers of the page look at it, each with one open stream, as `gangshare ui` does on ten machines. The leader's
processor time is taken without them and with them. TLS and the API server's reviews are not part of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import structlog
import uvloop

from extender.cluster.reviews import User
from extender.engine.types.effects import PostBinding
from extender.engine.types.events import BindDone, PodGone, PodSeen, PodsListed
from extender.metrics import Metrics
from extender.server import http
from extender.server.core import Core
from extender.server.desk import Traffic
from extender.server.garbage import Garbage
from extender.server.visibility.api import Api
from extender.settings import Address
from extender.ui.board import Board
from extender.ui.sources import Aggregated
from protos.contract.objects import decode_pod
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from tests.bench import bodies
from tests.bench.fleet import MEM, SMALL, WHOLE, Fleet
from tests.bench.report import Figure
from tests.builders import a_ref
from tests.cluster.gangshare import ROOT

NODES, PODS, WAITING, VIEWERS = 5_000, 20_000, 200, 10
STARTS_A_SECOND = 5
"""Pods that end, and as many that start."""
SETTLING_S, LASTING_S = 20.0, 60.0
MARK = 5.0
"""Percent of a core."""


class _Reviews:
    """Everybody may see everything."""

    async def permitted(self, *_: object) -> Literal[True]:
        return True


class _Open(Api):
    """Without the front proxy's certificate."""

    def _user(self, scope: Any) -> User:  # all are the same
        return User("viewer")


async def _serve(nodes: int, pods: int) -> None:
    """Tell the port; at each line, the processor time so far."""
    fleet = Fleet(nodes, pods)
    for number in range(WAITING):
        made = bodies.stored(bodies.pod(f"late-{number}", {WHOLE: 8} if number % 2 else {MEM: 9_999}))
        fleet.engine.step(PodSeen(decode_pod(msgspec.json.encode(made))), time.monotonic())
    fleet.engine.step(PodsListed(), time.monotonic())
    metrics = Metrics(fleet.engine.counters)
    garbage = Garbage(metrics.steps)
    core = Core(fleet.engine, metrics, lambda _: None)
    api = _Open(core, Traffic(metrics.steps), _Reviews(), lambda: "leader")  # type: ignore[arg-type]
    listener = http.listen("--visibility-listen", Address("127.0.0.1", 0))
    async with asyncio.TaskGroup() as tasks:
        serving = [tasks.create_task(http.Server(api, http.AGGREGATED).serve(sockets=[listener]))]
        serving += [tasks.create_task(_busy(fleet)), tasks.create_task(_tidy(garbage))]
        print(json.dumps(listener.getsockname()[1]), flush=True)
        garbage.settle()
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps([time.process_time(), time.monotonic()]), flush=True)
        for task in serving:
            task.cancel()


async def _busy(fleet: Fleet) -> None:
    """A pod ends and another starts, again and again."""
    running = [pod["metadata"]["uid"] for pod in fleet.bound]
    for number in range(sys.maxsize):
        await asyncio.sleep(1 / STARTS_A_SECOND)
        gone = running.pop(fleet.rng.randrange(len(running)))
        fleet.engine.step(PodGone(gone), time.monotonic())
        pod = decode_pod(msgspec.json.encode(bodies.stored(bodies.pod(f"new-{number}", fleet.rng.choice(SMALL)))))
        fleet.engine.step(PodSeen(pod), time.monotonic())
        node = fleet.engine.filter(pod, fleet.rng.sample(fleet.names, 50), time.monotonic()).nodes[0]
        assert isinstance(fleet.engine.bind(a_ref(pod), node, time.monotonic()), PostBinding)
        fleet.engine.step(BindDone(pod.metadata.uid, "bound"), time.monotonic())
        running.append(pod.metadata.uid)


async def _tidy(garbage: Garbage) -> None:
    while True:
        await asyncio.sleep(0.1)
        garbage.tick(leads=True)


async def _view(port: int, viewers: int) -> None:
    """Show so many pages until killed; at a line, how many changes they were told in all."""
    told = 0

    async def viewer() -> None:
        nonlocal told
        async with ApiClient(Credentials(f"http://127.0.0.1:{port}"), answer_s=120.0) as client:
            board = Board(Aggregated(client))
            snapshot = await board.snapshot("bench", "")
            assert len(snapshot.nodes) == NODES, len(snapshot.nodes)
            async for _ in board.stream(snapshot.cursor):
                told += 1

    viewing = [asyncio.create_task(viewer()) for _ in range(viewers)]
    await asyncio.to_thread(sys.stdin.readline)
    print(told, flush=True)
    for task in viewing:
        task.cancel()
    await asyncio.wait(viewing)


@contextlib.contextmanager
def _child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command, pipe = [sys.executable, "-m", "tests.bench.page", *arguments], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _asked(process: subprocess.Popen[str]) -> Any:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return _told(process)


def _told(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def _load(server: subprocess.Popen[str]) -> float:
    """Percent of a core that the leader takes from now on."""
    cpu, began = _asked(server)
    time.sleep(LASTING_S)
    more, ended = _asked(server)
    return 100 * float(more - cpu) / float(ended - began)


def run() -> list[Figure]:
    """At the size that the budget names."""
    with _child("serve", f"{NODES}", f"{PODS}") as server:
        port = _told(server)
        alone = _load(server)
        with _child("view", f"{port}", f"{VIEWERS}") as viewers:
            time.sleep(SETTLING_S)
            beside = _load(server)
            changes = int(_asked(viewers))
    if changes < VIEWERS * LASTING_S / 10:
        raise RuntimeError(f"{VIEWERS} pages were told {changes} changes: expected one in 10 s for each at least")
    label = f"page, {VIEWERS} viewers, {NODES:,} nodes, {PODS:,} pods"
    return [
        Figure(f"{label}: leader takes", beside - alone, "% of a core", mark=MARK),
        Figure(f"{label}: changes told", changes / VIEWERS / (SETTLING_S + LASTING_S), "/s", better="more"),
    ]


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    what, *numbers = sys.argv[1:]
    uvloop.run((_serve if what == "serve" else _view)(*map(int, numbers)))
