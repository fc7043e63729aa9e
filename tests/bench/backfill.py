"""What it costs to keep room for those who come first, at 5,000 nodes and 20,000 pods, with 10,000 gangs that wait.

Four gangs wait for whole nodes, each first in its queue. Nothing here waits for anything, so marks are held against CPU
time.
"""

from __future__ import annotations

import time
from functools import partial

import msgspec

from extender.engine.types.events import PodGone, PodSeen, PodsListed, QueueSeen, Tick
from extender.engine.types.settings import Settings
from extender.server.garbage import Garbage
from extender.steps import Steps
from protos.contract import names
from protos.contract.objects import Pod, decode_pod
from protos.contract.queue import GPU, GPUS, Queue
from tests.bench import bodies
from tests.bench.fleet import WHOLE, Fleet
from tests.bench.queues import took
from tests.bench.report import Figure, percentile
from tests.builders import a_pod
from tests.unit.engine.gang_story import a_member

NODES, PODS, SMALL = 5_000, 20_000, 10_000
HEADS = (512, 200, 200, 200)
FREE = 100
"""Nodes with all GPUs free; the first gang needs more."""
AFTER_S = 1.0
LASTS_S = 300
"""Ticks and thinking go on for so many seconds of the engine's clock, in steps of one."""


class _World:
    def __init__(self) -> None:
        self.view = Fleet(NODES, PODS, Settings(backfill_delay_s=AFTER_S, preemption=False))
        self.engine, self.now = self.view.engine, time.monotonic()
        self.slices: list[float] = []
        self.engine.step(PodsListed(), self.now)
        idle = [n for n, node in self.engine.nodes.items() if node.books is not None and len(node.books.idle()) == 8]
        for number, name in enumerate(idle[FREE:]):
            said = {names.EXPECTED_RUNTIME: f"{3600 + number}"}
            self.see(a_pod(f"full-{number}", whole=8, node=name, annotations=said))
        for number in range(SMALL // 10):
            self.engine.step(QueueSeen(Queue(name=f"q{number}", capability={GPUS: GPU})), self.now)
        for number in range(SMALL):
            self._gang(f"small-{number}", 2, 1, f"q{number // 10}")

    def see(self, *pods: Pod) -> None:
        for pod in pods:
            self.engine.step(PodSeen(pod), self.now)

    def _gang(self, name: str, size: int, gpus: int, queue: str) -> None:
        said = {names.QUEUE: queue, names.EXPECTED_RUNTIME: "3600"}
        self.see(*(a_member(f"{name}-{i}", gang=name, least=size, whole=gpus, annotations=said) for i in range(size)))

    def heads(self) -> None:
        for number, size in enumerate(HEADS):
            self.engine.step(QueueSeen(Queue(name=f"first-{number}")), self.now)
            self._gang(f"head-{number}", size, 8, f"first-{number}")

    def until_kept(self) -> None:
        """Time passes until all have a promise."""
        for _ in range(LASTS_S):
            self.now += 1.0
            self.engine.step(Tick(), self.now)
            more = True
            while more:
                began = time.thread_time()
                more = self.engine.run_slice(self.now)
                self.slices.append((time.thread_time() - began) * 1000)
            if all(self.engine.backfill.of(f"gang default/head-{number}") for number in range(len(HEADS))):
                return
        raise RuntimeError(f"expected a start for each of {len(HEADS)} gangs within {LASTS_S} s")


def _a_pod(name: str) -> Pod:
    made = bodies.stored(bodies.pod(name, {WHOLE: 1}))
    made["metadata"]["annotations"] = {names.EXPECTED_RUNTIME: "360000"}
    return decode_pod(msgspec.json.encode(made))


def _decisions(world: _World, count: int) -> list[float]:
    """Milliseconds of so many filters for pods behind them, a pod on one of their nodes gone in between."""
    promise = world.engine.backfill.of("gang default/head-0")
    assert promise is not None
    ends = [uid for name in promise.nodes for uid in world.engine.ledger.on_node.get(name, ())]
    found = []
    for number in range(count):
        pod = _a_pod(f"behind-{number}")
        world.engine.step(PodSeen(pod), world.now)
        if number % 2 and ends:
            world.engine.step(PodGone(ends.pop()), world.now)
        while world.engine.prepare(pod, [], world.now):
            pass
        found.append(took(partial(world.engine.filter, pod, world.view.names, world.now)))
        world.engine.step(PodGone(pod.metadata.uid), world.now)
    return found


def run() -> list[Figure]:
    """All of it."""
    world = _World()
    Garbage(Steps()).settle()
    world.heads()
    world.slices.clear()
    world.until_kept()
    slices = world.slices
    found = _decisions(world, 200)
    label = f"{len(HEADS)} first in line, {NODES:,} nodes, {PODS:,} pods, {SMALL:,} gangs that wait"
    return [
        Figure(f"{label}: starts found", sum(slices), "ms"),
        Figure(f"{label}: longest slice", max(slices), "ms"),
        Figure(f"{label}: a decision for one behind, p99", percentile(found, 0.99), "ms", mark=50.0),
    ]
