"""Queues at the size of a large cluster: what is due to 1,000 of them, 10,000 gangs that wait for room in theirs, and
10,000 single pods of all of them that wait for GPUs.

Nothing here waits for anything, so marks are held against CPU time.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from extender.engine.cycle.engine import Engine
from extender.engine.queueing.queues import Queues
from extender.engine.types.events import NodeSeen, PodGone, PodSeen, PodsListed, QueueSeen, Tick
from extender.engine.types.settings import Settings
from protos.contract import names
from protos.contract.queue import GPU, GPUS, Queue
from tests.bench.report import Figure
from tests.builders import a_node, a_pod
from tests.unit.engine.gang_story import a_member

QUEUES, PODS, GANGS, NODES, DEPTH, SHAPES = 1_000, 10_000, 10_000, 50, 30, 16
TICK_S, SETTLED_S, THINKS = 0.2, 2.0, 200


def took(work: Callable[[], object], times: int = 1) -> float:
    """Milliseconds of CPU time of one of so many."""
    began = time.thread_time()
    for _ in range(times):
        work()
    return (time.thread_time() - began) * 1000 / times


def _dues() -> list[Figure]:
    draw, queues = random.Random(1), Queues()
    for number in range(QUEUES):
        parent = f"q{number % DEPTH}" if number >= DEPTH else ""
        deserved = {GPUS: GPU * draw.randrange(9)}
        queues.put(Queue(name=f"q{number}", parent=parent, weight=draw.randint(1, 5), deserved=deserved))
    queues.node("all", {GPUS: 4_000 * GPU})

    def a_change() -> None:
        uid, queue = f"p{draw.randrange(PODS)}", f"q{draw.randrange(QUEUES)}"
        queues.see(uid, queue, "ns", ((GPUS, GPU * draw.randint(1, 8)), ("cpu", 1000)), placed=draw.random() < 0.3)

    for _ in range(PODS):
        a_change()
    first = took(lambda: queues.reckon({}))
    change = took(a_change, 10_000)

    def anew() -> None:
        a_change()
        queues.reckon({})

    again = took(anew, 10)
    return [
        Figure(f"{QUEUES:,} queues, {PODS:,} pods: the tree built, and what is due", first, "ms"),
        Figure("what is due reckoned anew", again, "ms", mark=20.0),
        Figure("a pod that comes, goes or starts", change, "ms", mark=1.0),
    ]


def _pass(engine: Engine, now: float) -> None:
    """A tick, and what is planned until the next."""
    engine.step(Tick(), now)
    for _ in range(THINKS):
        if not engine.run_slice(now):
            break
        engine.effects()


def _resident_mib() -> float:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def _waiting() -> list[Figure]:
    before = _resident_mib()
    engine, now = Engine(Settings()), 100.0
    for number in range(NODES):
        engine.step(NodeSeen(a_node(f"n{number}", *[16] * 8)), now)
    for number in range(QUEUES):
        engine.step(QueueSeen(Queue(name=f"q{number}", capability={GPUS: GPU})), now)
    engine.step(PodsListed(), now)
    single = a_pod("single", whole=1, annotations={names.QUEUE: "q0"}, node="n0")
    engine.step(PodSeen(single), now)
    for number in range(GANGS):
        said = {names.QUEUE: f"q{number % QUEUES}"}
        for member in range(2):
            pod = a_member(f"g{number}-{member}", gang=f"g{number}", least=2, whole=1, annotations=said)
            engine.step(PodSeen(pod), now)
    while now < 100 + SETTLED_S:
        now += TICK_S
        _pass(engine, now)
    quiet = took(lambda: engine.step(Tick(), now + TICK_S), 5)
    engine.step(PodGone(single.metadata.uid), now + TICK_S)
    freed = took(lambda: _pass(engine, now + 2 * TICK_S))
    decision = took(lambda: engine.filter(a_pod("new", mem=4), ["n1", "n2"], now + 2 * TICK_S))
    return [
        Figure(f"{GANGS:,} gangs wait for {QUEUES:,} full queues: a tick", quiet, "ms", mark=50.0),
        Figure("a tick with planning when a pod of one of them has ended", freed, "ms", mark=50.0),
        Figure("a decision beside them", decision, "ms", mark=50.0),
        Figure("what they add to the memory of a process", _resident_mib() - before, "MiB", mark=400.0),
    ]


def _singles() -> list[Figure]:
    engine, now, nodes = Engine(Settings()), 100.0, [f"n{number}" for number in range(NODES)]
    for node in nodes:
        engine.step(NodeSeen(a_node(node, *[16] * 8)), now)
        engine.step(PodSeen(a_pod(f"on-{node}", whole=8, node=node)), now)
    for number in range(QUEUES):
        engine.step(QueueSeen(Queue(name=f"q{number}")), now)
    engine.step(PodsListed(), now)
    for number in range(PODS):
        pod = a_pod(f"p{number}", mem=1 + number % SHAPES, annotations={names.QUEUE: f"q{number * 7 % QUEUES}"})
        engine.step(PodSeen(pod), now)
        engine.filter(pod, nodes, now)
    while now < 100 + SETTLED_S:
        now += TICK_S
        _pass(engine, now)
    engine.step(PodGone("uid-on-n0"), now)
    freed = took(lambda: _pass(engine, now + TICK_S))
    label = f"{PODS:,} single pods in {QUEUES:,} queues wait for GPUs: a tick with planning when a node came free"
    return [Figure(label, freed, "ms", mark=50.0)]


def run() -> list[Figure]:
    """All of it. Memory is that of a process of its own: another heap would have room left."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        waiting = process.submit(_waiting).result()
    return [*_dues(), *waiting, *_singles()]
