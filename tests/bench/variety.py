"""Many shapes of pods at once: what a question costs whose shape was not asked for a while.

512 shapes, of which few are asked most of the time (1 / rank), on nodes that change all the time: for each pod that
comes another one ends. All is driven by seeds, so two runs ask the same; figures are CPU time. `like the week`: 45
asks with different CPU, as in the soak; `all apart`: no two shapes ask the same of a GPU.

`python -m tests.bench.variety NODES ASKED DECISIONS` measures one size.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import Sequence

import msgspec
import structlog

from extender.engine.types.effects import PostBinding
from extender.engine.types.events import BindDone, PodGone, PodSeen, Tick
from extender.metrics import Metrics
from extender.server.binds import Binds
from extender.server.core import Core
from extender.server.garbage import Garbage
from extender.server.gate import Gate
from extender.server.verbs import Handler, Verbs
from extender.wire import shapes
from protos.contract.objects import decode_pod
from tests.bench import bodies
from tests.bench.bodies import Json, Limits
from tests.bench.fleet import MEM, SLICE, WHOLE, Fleet
from tests.bench.report import Figure, percentile, show
from tests.builders import a_ref

SHAPES, PODS, DECISIONS, PER_TICK = 512, 20_000, 2_000, 20
SIZES = ((1_000, 1_000), (5_000, 100), (5_000, 500), (5_000, 5_000))
"""Nodes, and how many of them are asked about at a time: 100 in layout own, a tenth in the others."""
Wish = tuple[Limits, int]
"""What a pod asks of GPUs, and cores."""


def _like_the_week() -> list[Wish]:
    asks: list[Limits] = [{MEM: mem} for mem in range(1, 41)]
    asks += [{WHOLE: count} for count in (1, 2, 3, 4, 8)]
    return [(asks[i % len(asks)], 1 + i // len(asks)) for i in range(SHAPES)]


def _all_apart() -> list[Wish]:
    asks: list[Limits] = [{WHOLE: count} for count in (1, 2, 4, 8)]
    asks += [{MEM: 1 + i % 40, SLICE: 1 + 3 * (i // 40)} for i in range(SHAPES - len(asks))]
    return [(ask, 1 + i % 11) for i, ask in enumerate(asks)]


WISHES = {"like the week": _like_the_week, "all apart": _all_apart}


class _Life:
    """Pods that come and go, one for one."""

    def __init__(self, nodes: int, asked: int, wishes: Sequence[Wish], tasks: asyncio.TaskGroup) -> None:
        self._asked = asked
        self.view, self.rng = Fleet(nodes, min(PODS, 4 * nodes)), random.Random(nodes)
        metrics = Metrics(self.view.engine.counters)
        self._garbage = Garbage(metrics.steps)
        self.core = Core(self.view.engine, metrics, lambda _: None)
        self.verbs = Verbs(self.core, Binds(self.core, None, tasks), Gate(lambda _: None))  # type: ignore[arg-type]
        self._wishes = list(wishes)
        self.rng.shuffle(self._wishes)
        self._weights = [1 / (1 + rank) for rank in range(len(self._wishes))]
        self._running = [pod["metadata"]["uid"] for pod in self.view.bound]
        self.filters: list[float] = []
        self.scores: list[float] = []
        self.seen: list[float] = []
        self._count = 0
        self._garbage.settle()

    async def warm(self) -> None:
        """Each shape was asked before."""
        for wish in self._wishes:
            await self._come(wish)
        for times in (self.filters, self.scores, self.seen):
            times.clear()

    async def run(self, decisions: int) -> None:
        for wish in self.rng.choices(self._wishes, self._weights, k=decisions):
            await self._come(wish)

    async def _come(self, wish: Wish) -> None:
        pending = bodies.stored(_pod(f"new-{self._count:06}", *wish))
        pod = decode_pod(msgspec.json.encode(pending))
        began = time.thread_time()
        self.core.tell(PodSeen(pod))
        self.seen.append(1000 * (time.thread_time() - began))
        every = self.view.names
        some = every if self._asked >= len(every) else self.rng.sample(every, self._asked)
        answer = await self._timed(self.filters, self.verbs.filter, pending, some)
        offered: list[str] = msgspec.json.decode(answer).get("NodeNames") or []
        if len(offered) > 1:
            await self._timed(self.scores, self.verbs.prioritize, pending, offered)
        placed = self.core.engine.bind(a_ref(pod), offered[0], self.core.clock()) if offered else None
        if isinstance(placed, PostBinding):
            self.core.tell(BindDone(pod.metadata.uid, "bound"))
            bound = bodies.running(pending, offered[0], placed.annotations)
            self.core.tell(PodSeen(decode_pod(msgspec.json.encode(bound))))
            self._running.append(pod.metadata.uid)
        else:
            self.core.tell(PodGone(pod.metadata.uid))
        i = self.rng.randrange(len(self._running))
        self._running[i], self._running[-1] = self._running[-1], self._running[i]
        self.core.tell(PodGone(self._running.pop()))
        self._count += 1
        if self._count % PER_TICK == 0:
            self.core.tell(Tick())
            self._garbage.tick(leads=True)
            while self.core.run_slice():
                pass

    async def _timed(self, times: list[float], verb: Handler, pod: Json, nodes: list[str]) -> bytes:
        body = shapes.encode({"Pod": pod, "Nodes": None, "NodeNames": nodes})
        began = time.thread_time()
        answer = await verb(body)
        times.append(1000 * (time.thread_time() - began))
        return answer[2]


def _pod(name: str, ask: Limits, cores: int) -> Json:
    made = bodies.pod(name, ask)
    made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": str(cores), "memory": "1Gi"}
    return made


async def _measure(nodes: int, asked: int, wishes: Sequence[Wish], decisions: int) -> _Life:
    async with asyncio.TaskGroup() as tasks:
        life = _Life(nodes, asked, wishes, tasks)
        await life.warm()
        await life.run(decisions)
    return life


def figures(nodes: int, asked: int, decisions: int) -> list[Figure]:
    """Of one size."""
    found = []
    for kind, wishes in WISHES.items():
        life = asyncio.run(_measure(nodes, asked, wishes(), decisions))
        label = f"{SHAPES} shapes {kind}, {nodes:,} nodes, {asked:,} asked about"
        for verb, times, mark in (("filter", life.filters, 5.0), ("prioritize", life.scores, None)):
            if times:
                found.append(Figure(f"{label}: {verb}, p50", percentile(times, 0.5), "ms"))
                found.append(Figure(f"{label}: {verb}, p99", percentile(times, 0.99), "ms", mark=mark))
                found.append(Figure(f"{label}: {verb}, longest", max(times), "ms", mark=mark and 20.0))
    return found


def run() -> list[Figure]:
    """Each size."""
    return [figure for nodes, asked in SIZES for figure in figures(nodes, asked, DECISIONS)]


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    sys.exit(not show(figures(*map(int, sys.argv[1:4]))))
