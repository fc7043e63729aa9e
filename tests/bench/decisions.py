"""filter + prioritize in the process: from the request's bytes to the answer's, with pod updates flowing in between.

Between two decisions, 5 ms apart or as long as the last one took, the pod updates that 200/s bring meanwhile are taken
in from their JSON; every tenth of them ends a pod and so changes a node. What kube-scheduler does, making requests and
reading answers, is not counted. Shapes are such as were asked before; the first decision of a new one is told apart.
kube-scheduler asks about every node, or about some that it has checked: 100 in layout own, a tenth in the others.
A decision waits for nothing, so its mark is held against CPU time: what it takes on a processor that nobody else uses.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from extender.engine.types.events import PodGone, PodSeen, Tick
from extender.metrics import Metrics
from extender.server.binds import Binds
from extender.server.core import Core
from extender.server.gate import Gate
from extender.server.run import TICK_S
from extender.server.verbs import Handler, Verbs
from extender.wire import shapes
from protos.contract.objects import Pod, decode_pod
from tests.bench import bodies
from tests.bench.bodies import Json
from tests.bench.fleet import MEM, MIXED, SLICE, Fleet
from tests.bench.report import Figure, percentile
from tests.builders import a_ref

PODS = 20_000
DECISIONS = 2_000
UPDATES_PER_S = 200
LEAST_S = 0.005
NEW_SHAPES = 20
P99_MS, NEW_MS = 5.0, 10.0


class Took(NamedTuple):
    """Seconds."""

    cpu: float
    wall: float


class _World:
    """A filled cluster behind the verbs, and the updates of its pods."""

    def __init__(self, nodes: int, pods: int, checked: int, tasks: asyncio.TaskGroup) -> None:
        """`checked`: so many nodes are asked about at a time."""
        self.view, self._pods, self._checked = Fleet(nodes, pods), pods, checked
        self.core = Core(self.view.engine, Metrics(self.view.engine.counters), lambda _: None)
        gate = Gate(lambda _: None)
        self.verbs = Verbs(self.core, Binds(self.core, None, tasks), gate)  # type: ignore[arg-type]  # no Binding is written
        self._running = [(pod["metadata"]["uid"], msgspec.json.encode(pod)) for pod in self.view.bound]
        self._updates, self._owed, self._since_tick = self._flow(), 0.0, 0.0

    def pass_time(self, seconds: float) -> None:
        """Take in what the watch brings in so many seconds."""
        self._owed += seconds * UPDATES_PER_S
        while self._owed >= 1:
            self._owed -= 1
            next(self._updates)
        self._since_tick += seconds
        if self._since_tick >= TICK_S:
            self._since_tick = 0.0
            self.core.tell(Tick())

    def _flow(self) -> Iterator[None]:
        rng = random.Random(len(self._running))
        while True:
            i = rng.randrange(len(self._running))
            uid, body = self._running[i]
            if rng.random() < 0.1 and len(self._running) > self._pods // 2:
                self._running[i] = self._running[-1]
                self._running.pop()
                self.core.tell(PodGone(uid))
            else:
                self.core.tell(PodSeen(decode_pod(body)))
            yield

    async def decide(self, made: Json) -> tuple[Took, list[str]]:
        """What our verbs took, and the nodes offered, for a pod that the watch has shown."""
        pending = bodies.stored(made)
        self.core.tell(PodSeen(decode_pod(msgspec.json.encode(pending))))
        every = self.view.names
        some = every if self._checked >= len(every) else self.view.rng.sample(every, self._checked)
        took, answer = await _timed(self.verbs.filter, _question(pending, some))
        offered: list[str] = msgspec.json.decode(answer).get("NodeNames") or []
        if len(offered) > 1:  # kube-scheduler asks for scores only where there is a choice
            more, _ = await _timed(self.verbs.prioritize, _question(pending, offered))
            took = Took(took.cpu + more.cpu, took.wall + more.wall)
        return took, offered

    def settle(self, pod: Pod, offered: list[str]) -> None:
        """The pod is bound where it was offered, and soon over, so that the cluster stays as full as it is."""
        if offered:
            self.core.engine.bind(a_ref(pod), offered[0], self.core.clock())
        self.core.tell(PodGone(pod.metadata.uid))


def _question(pod: Json, nodes: list[str]) -> bytes:
    return shapes.encode({"Pod": pod, "Nodes": None, "NodeNames": nodes})


async def _timed(verb: Handler, body: bytes) -> tuple[Took, bytes]:
    cpu, wall = time.thread_time(), time.perf_counter()
    answer = await verb(body)
    return Took(time.thread_time() - cpu, time.perf_counter() - wall), answer[2]


async def _measure(nodes: int, pods: int, checked: int) -> tuple[list[Took], list[Took]]:
    """Decisions about known shapes, and the first one about each of some new shapes."""
    known = [*MIXED] * (DECISIONS // len(MIXED))
    new = [{MEM: 11 + i, SLICE: 7} for i in range(NEW_SHAPES)]
    async with asyncio.TaskGroup() as tasks:
        world = _World(nodes, pods, checked, tasks)
        world.view.rng.shuffle(known)
        decisions = []
        for i, limits in enumerate([*MIXED, *known, *new]):
            made = bodies.pod(f"new-{i:06}", limits)
            took, offered = await world.decide(made)
            decisions.append(took)
            world.settle(decode_pod(msgspec.json.encode(bodies.stored(made))), offered)
            world.pass_time(max(took.wall, LEAST_S))
    return decisions[len(MIXED) : -NEW_SHAPES], decisions[-NEW_SHAPES:]


def figures(nodes: int, pods: int, checked: int, *, mark: float = P99_MS, first: float | None = None) -> list[Figure]:
    """Of one size; `first`: the mark of the first decision about a shape."""
    known, new = asyncio.run(_measure(nodes, pods, checked))
    told = "every node asked about" if checked >= nodes else f"{checked:,} asked about"
    label = f"filter+prioritize, {nodes:,} nodes, {told}, {pods:,} pods, {UPDATES_PER_S} updates/s"
    cpu, wall, of_new = [t.cpu for t in known], [t.wall for t in known], [t.cpu for t in new]
    return [
        Figure(f"{label}: p50", 1000 * percentile(cpu, 0.5), "ms"),
        Figure(f"{label}: p99", 1000 * percentile(cpu, 0.99), "ms", mark=mark),
        Figure(f"{label}: p99 by the clock", 1000 * percentile(wall, 0.99), "ms"),
        Figure(f"{label}: new shape, p50", 1000 * percentile(of_new, 0.5), "ms", mark=first),
    ]


def run() -> list[Figure]:
    """At 100, 1,000 and 5,000 nodes, with every node asked about and with some."""
    found: list[Figure] = []
    for nodes, checked in ((100, 100), (1_000, 1_000), (5_000, 5_000), (5_000, 500), (5_000, 100)):
        found += figures(nodes, PODS, checked, first=NEW_MS if nodes == 5_000 else None)
    return found
