"""A week in minutes: what merely goes on costs no memory, and no step of the event loop holds up the others for long.

100,000 pods come and go on 1,000 and on 5,000 nodes: 500 shapes, 2,000 pods that name a GPU, gangs, 200 queues, nodes
that change, 10,000 finished Jobs left lying, watches that end with 410, two changes of leader. Core, engine, verbs and
feeds are the real ones, in a process of its own, on a virtual clock; a process that is told the cluster at the end
agrees with it. Memory is that of the process, less what the pods of the cluster around it take there. A step waits for
nothing, so its length is CPU time. A virtual machine counts as such what its host took away meanwhile, so the week is
lived twice, side by side: both lives take the same steps, and a step is as long as in the life in which it was shorter.

`python -m tests.bench soak` runs all of it, an hour and more for each size; `python -m tests.bench.soak NODES PODS` one
size, with fewer pods in less time. It begins with a full cluster.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import random
import resource
import sys
import time
from array import array
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
import structlog

from extender.cluster import kinds
from extender.cluster.feed import Feed
from extender.engine.cycle.engine import Engine
from extender.engine.types.effects import Evict, Open, PodRef, PostBinding, Requeue
from extender.engine.types.events import BindDone, ClassSeen, Leading, NodeSeen, PodSeen, PodsListed, QueueSeen
from extender.engine.types.settings import Settings
from extender.metrics import Metrics
from extender.server.binds import Binds
from extender.server.core import Core
from extender.server.garbage import Garbage
from extender.server.gate import Gate
from extender.server.verbs import Verbs
from extender.steps import BUCKETS, GARBAGE, Steps
from extender.wire import shapes
from protos.contract import allocation, objects
from protos.contract.gpu_class import GpuClass
from protos.contract.queue import GPU, GPUS, Queue
from protos.contract.selection import Selection
from protos.kube import paths
from tests.bench.report import Figure, percentile, show
from tests.bench.week import QUEUES, Pod, Server, arrivals

WEEK_S = 7 * 24 * 3600.0
HOURS = 168
TICKS = 1
"""Ticks for each pod, so many that there are some 600 in an hour; a real one has 18,000."""
LYING = 0.1
"""The share of pods that are left lying when they have finished."""
WAITING = 20
"""One pod waits for this many that run, and at most twice as many do: as at the end so after the first hour."""
PODS, SIZES = 100_000, (1_000, 5_000)
NONE: dict[str, str] = {}
STEP_MS, CUT_MS, MIB, GROWTH = 5.0, 20.0, 500.0, 1.25
SLICES, IDLE, ROUNDS = 12, 4, 4
"""At most between two things that happen: slices of planning, those between two ticks, and rounds of kube-scheduler."""


class Seen(msgspec.Struct):
    """What one size came to."""

    hours: list[float]
    """MiB after each hour."""
    filters: list[float]
    """Milliseconds of CPU."""
    steps: dict[str, tuple[int, int, float]]
    """By kind: all, those over 5 ms, and the longest in milliseconds."""
    long: dict[str, dict[int, float]]
    """By kind: milliseconds of each step over 5 ms, by its number."""
    violations: int
    differ: int
    """Nodes on which a new process would book something else."""
    bound: int
    finished: int
    shapes: int


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


class LongSteps(Steps):
    """Steps in CPU time, of which the long ones are remembered: another life takes the same ones."""

    def __init__(self) -> None:
        super().__init__(time.thread_time)
        self.long: dict[str, dict[int, float]] = {}
        """By kind: milliseconds, by how many of the kind came before. Equal lives make equally many containers here, so
        that garbage is collected at the same steps."""
        self.longest: dict[str, float] = {}

    def note(self, kind: str, seconds: float) -> None:
        self.longest[kind] = max(seconds, self.longest.get(kind, 0.0))
        long = self.long.get(kind)
        if long is None:
            long = self.long[kind] = {}
        if seconds > STEP_MS / 1000:
            long[sum(self.counts.get(kind, ()))] = 1000 * seconds
        super().note(kind, seconds)


class Life:
    """The process, and the world around it."""

    def __init__(self, nodes: int, pods: int, tasks: asyncio.TaskGroup) -> None:
        self.now, self.rng, self.count = 1000.0, random.Random(nodes), pods
        self.server, self.live = Server(nodes), max(200, min(4 * nodes, pods // 5))
        self.engine = Engine(Settings(), self.now, time.time() - self.now)
        metrics = Metrics(self.engine.counters)
        metrics.steps = self.steps = LongSteps()
        self._tasks, self._garbage = tasks, Garbage(self.steps)
        self.core = Core(self.engine, metrics, self._write, clock=lambda: self.now)
        binds = Binds(self.core, None, tasks)  # type: ignore[arg-type]  # no Binding is written
        self.core.release = self._release
        self.verbs = Verbs(self.core, binds, Gate(lambda _: None))
        self.feeds = [
            Feed(self.server, kinds.NODES, self.core.tell, metrics),  # type: ignore[arg-type]
            Feed(self.server, kinds.PODS, self.core.tell, metrics),  # type: ignore[arg-type]
        ]
        self._running: list[str] = []
        self._asking: dict[str, None] = {}
        self._opened: list[PostBinding] = []
        self._names = list(self.server.nodes)
        self.filters = array("d")
        self.finished = self.bound = 0

    # -- the process

    def _write(self, effects: object) -> None:
        for effect in effects:  # type: ignore[attr-defined]
            if isinstance(effect, Requeue):
                self._asking[effect.pod.name] = None
            elif isinstance(effect, Evict):
                self._gone(effect.pod.name)

    def _release(self, effect: object) -> None:
        if isinstance(effect, Open):
            self._opened.append(effect.place)

    async def settle(self) -> None:
        """Let what was told arrive."""
        while self._opened:
            self._land(self._opened.pop())
        while not self.server.quiet():  # noqa: ASYNC110  # each turn of the loop is a step
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)

    def _run_slices(self, slices: int) -> None:
        """Plan, for as long as there is time."""
        for _ in range(slices):
            if not self.core.run_slice():
                break

    async def tick(self, seconds: float) -> None:
        self.now += seconds
        for part in self.engine.ticks:
            self.core.tell(part)
        self._garbage.tick(leads=True)
        self._run_slices(IDLE)
        if self._asking or self._opened or not self.server.quiet():
            await self._scheduled()

    async def run(self) -> Seen:
        served = [self._tasks.create_task(feed.run()) for feed in self.feeds]
        for feed in self.feeds:
            await feed.listed()
        for i in range(QUEUES):
            self.core.tell(QueueSeen(Queue(name=f"q{i}", capability={GPUS: 400 * GPU})))
        for pods in arrivals("old", self.live, self._names, 6):
            await self._arrive(pods)
        await self._trouble(0)
        self._garbage.settle()
        del self.filters[:]
        self.steps.counts.clear()
        self.steps.longest.clear()
        self.steps.long.clear()
        coming = arrivals("new", self.count, self._names, 7)
        hours: list[float] = []
        with self.steps.collections():
            for hour in range(HOURS):
                came = 0
                while came < self.count / HOURS and (pods := next(coming, [])):
                    came += len(pods)
                    await self._arrive(pods)
                    await self._leave()
                    for _ in range(TICKS * len(pods)):
                        await self.tick(WEEK_S / self.count / TICKS)
                await self._trouble(hour)
                hours.append(resident_mib() - self.server.mib)
                if hour % 24 == 23:
                    print(f"  day {hour // 24 + 1}: {hours[-1]:.0f} MiB, {time.thread_time():.0f} s of CPU", flush=True)
        await self.settle()
        seen = self._seen(hours)
        for task in served:
            task.cancel()
        return seen

    # -- what happens

    async def _arrive(self, pods: list[Pod]) -> None:
        for pod in pods:
            self.server.pods[pod.name] = pod
            self.server.tell("ADDED", paths.pods(), pod.json(0))
            self._asking[pod.name] = None
        await self._scheduled()

    async def _scheduled(self) -> None:
        """kube-scheduler takes all that have come or were woken, before time passes."""
        for _ in range(ROUNDS):
            await self.settle()
            if not self._asking:
                return
            self._run_slices(SLICES)
            for name in list(self._asking):
                self._asking.pop(name, None)
                pod = self.server.pods.get(name)
                if pod is not None and not pod.node and pod.phase == "Pending":
                    await self._ask(pod)

    async def _ask(self, pod: Pod) -> None:
        body = shapes.encode({"Pod": pod.json(1), "Nodes": None, "NodeNames": self._names})
        began = time.thread_time()
        _, _, answer = await self.verbs.filter(body)
        self.filters.append(1000 * (time.thread_time() - began))
        offered = msgspec.json.decode(answer).get("NodeNames") or []
        if len(offered) > 1:
            await self.verbs.prioritize(shapes.encode({"Pod": pod.json(1), "Nodes": None, "NodeNames": offered}))
        if offered:
            placed = self.steps.timed(
                "bind", self.engine.bind, PodRef("default", pod.name, pod.uid), offered[0], self.now
            )
            self.core.flush()
            if isinstance(placed, PostBinding):
                self._land(placed)
        await self.settle()

    def _land(self, place: PostBinding) -> None:
        pod = self.server.pods[place.pod.name]
        pod.node, pod.phase, pod.annotations = place.node, "Running", dict(place.annotations)
        self._running.append(pod.name)
        self.bound += 1
        self.core.tell(BindDone(pod.uid, "bound"))
        self.server.tell("MODIFIED", paths.pods(), pod.json(0))

    async def _leave(self) -> None:
        """Who has run for long enough ends: some are left lying, as finished Jobs are."""
        while len(self._running) > self.live:
            i = self.rng.randrange(len(self._running))
            self._running[i], self._running[-1] = self._running[-1], self._running[i]
            pod = self.server.pods.get(name := self._running.pop())
            if pod is None:
                continue
            if self.rng.random() < LYING and self.finished < self.count * LYING:
                pod.phase, pod.annotations = "Succeeded", NONE
                self.server.tell("MODIFIED", paths.pods(), pod.json(0))
                self.finished += 1
            else:
                self._gone(name)
        if len(self.server.pods) > self.finished + self.live + 2 * self.live // WAITING:  # the oldest give up
            for name in [name for name, pod in self.server.pods.items() if not pod.node][: self.live // WAITING]:
                self._gone(name)
        await self.settle()

    def _gone(self, name: str) -> None:
        pod = self.server.pods.pop(name, None)
        if pod is not None:
            self.server.tell("DELETED", paths.pods(), pod.json(0))

    async def _trouble(self, hour: int) -> None:
        """Nodes change, all of them once in two days; classes and queues do; watches end; another leads for a while."""
        changed = self._names if hour % 48 == 20 else self.rng.sample(self._names, max(1, len(self._names) // 200))
        for name in changed:
            self.server.nodes[name] += 1
            self.server.tell("MODIFIED", paths.nodes(), self.server.node(name))
        await self.settle()
        one = GpuClass(name="fast", selection=Selection(min_clock_mhz=1000 + hour))
        self.core.tell(ClassSeen(one))
        self.core.tell(QueueSeen(Queue(name=f"q{hour % QUEUES}", capability={GPUS: (400 + hour) * GPU})))
        if hour % 24 == 12:
            self.server.end_watch(self.rng.choice((paths.nodes(), paths.pods())))
        if hour in (50, 120):
            self.core.tell(Leading(False))
            await self.settle()
            for feed in self.feeds:
                await feed.relisted()
            self.core.tell(Leading(True))
        await self.settle()

    # -- what came of it

    def _seen(self, hours: list[float]) -> Seen:
        over = BUCKETS.index(STEP_MS / 1000) + 1
        steps = {
            kind: (sum(counts), sum(counts[over:]), 1000 * self.steps.longest[kind])
            for kind, counts in sorted(self.steps.counts.items())
        }
        kept = len(self.engine._components.indexes._shapes)
        assert not self.core.metrics.faults.counted, self.core.metrics.faults.counted
        return Seen(
            hours=hours,
            filters=list(self.filters),
            steps=steps,
            long=self.steps.long,
            violations=len(self.engine.check()),
            differ=self._differ(),
            bound=self.bound,
            finished=self.finished,
            shapes=kept,
        )

    def _differ(self) -> int:
        """On how many nodes a process that is told the cluster now books something else."""
        anew = Engine(Settings(), self.now, time.time() - self.now)
        for name in self.server.nodes:
            anew.step(NodeSeen(objects.decode_node(msgspec.json.encode(self.server.node(name)))), self.now)
        for pod in self.server.pods.values():
            anew.step(PodSeen(objects.decode_pod(msgspec.json.encode(pod.json(1)))), self.now)
        anew.step(PodsListed(), self.now)
        return sum(_books(self.engine, name) != _books(anew, name) for name in self.server.nodes)


def _books(engine: Engine, node: str) -> object:
    """Who holds what there for good."""
    books, pods = engine.nodes[node].books, engine.pods
    assert books is not None
    bound = {uid: entry.charges for uid, entry in books.entries.items() if uid in pods and pods[uid].state == "bound"}
    texts = {uid: pods[uid].allocation and allocation.encode(pods[uid].allocation) for uid in bound}  # type: ignore[arg-type]
    return bound, texts


async def _live(nodes: int, pods: int) -> Seen:
    async with asyncio.TaskGroup() as tasks:
        return await Life(nodes, pods, tasks).run()


def _lived(nodes: int, pods: int) -> Seen:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    return asyncio.run(_live(nodes, pods))


def measure(nodes: int, pods: int, lives: int = 2) -> list[Seen]:
    """One size, lived so many times, each in a process of its own."""
    with ProcessPoolExecutor(lives, multiprocessing.get_context("spawn")) as processes:
        return [life.result() for life in [processes.submit(_lived, nodes, pods) for _ in range(lives)]]


def both(first: Seen, second: Seen) -> dict[str, tuple[int, int, float]]:
    """The steps by kind, collections of garbage too, each as long as in the life in which it was shorter."""
    found = {}
    for kind, (count, _, longest) in first.steps.items():
        other = second.steps[kind]
        assert count == other[0], f"{kind}: {count} and {other[0]} steps, expected two equal lives"
        long, again = first.long[kind], second.long[kind]
        common = [min(long[step], again[step]) for step in long.keys() & again.keys()]
        found[kind] = count, len(common), max(common, default=min(STEP_MS, longest, other[2]))
    return found


def figures(nodes: int, pods: int) -> list[Figure]:
    """Of one size."""
    began = time.monotonic()
    seen, again = lives = measure(nodes, pods)
    steps = both(seen, again)
    label = f"a week, {nodes:,} nodes, {pods:,} pods"
    print(
        f"  {label}: {seen.bound:,} bound, {seen.finished:,} left lying, {time.monotonic() - began:.0f} s", flush=True
    )
    print(
        f"  memory by day: {', '.join(f'{mib:.0f}' for mib in seen.hours[::24])} MiB; {seen.shapes} shapes kept",
        flush=True,
    )
    for kind, (count, over, longest) in sorted(steps.items(), key=lambda each: -each[1][2]):
        print(f"  {kind}: {count:,} steps, {over} over {STEP_MS:g} ms, the longest {longest:.1f} ms", flush=True)
    for life, other in ((seen, again), (again, seen)):
        alone = [
            milliseconds
            for kind, long in life.long.items()
            for step, milliseconds in long.items()
            if step not in other.long[kind]
        ]
        longest = max(alone, default=0.0)
        print(f"  long in one of the two lives only: {len(alone)} steps, the longest {longest:.1f} ms", flush=True)
    growth = max(life.hours[-1] / life.hours[0] for life in lives)
    filters = [*seen.filters, *again.filters]
    steps_in_all = sum(count for count, _, _ in steps.values())
    return [
        Figure(f"{label}: memory after it over that after its first hour", growth, "", mark=GROWTH),
        Figure(f"{label}: memory", max(seen.hours + again.hours), "MiB", mark=MIB),
        Figure(f"{label}: filter, p50", percentile(filters, 0.5), "ms"),
        Figure(f"{label}: filter, p99", percentile(filters, 0.99), "ms", mark=5.0),
        Figure(f"{label}: longest step", max(longest for _, _, longest in steps.values()), "ms", mark=CUT_MS),
        Figure(f"{label}: longest collection of garbage", steps.get(GARBAGE, (0, 0, 0.0))[2], "ms", mark=STEP_MS),
        Figure(
            f"{label}: steps over {STEP_MS:g} ms, of all", sum(each[1] for each in steps.values()) / steps_in_all, ""
        ),
        Figure(f"{label}: violations", float(seen.violations + again.violations), "", mark=0.0),
        Figure(f"{label}: nodes that a new process books otherwise", float(seen.differ + again.differ), "", mark=0.0),
    ]


def run() -> list[Figure]:
    """Both sizes."""
    return [figure for nodes in SIZES for figure in figures(nodes, PODS)]


if __name__ == "__main__":
    sys.exit(not show(figures(int(sys.argv[1]), int(sys.argv[2]))))
