"""Gangs on a real kube-scheduler: from letting it go until the last member is bound, and until a verdict is told.

All members exist before the scheduler may begin. No kubelets: nodes are objects, members are bound and never run.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterator, Mapping

import uvloop

from protos.contract import names
from protos.kube import binding, paths
from tests.bench import bodies, ways
from tests.bench.bodies import Json, Limits
from tests.bench.fleet import MEM, WHOLE
from tests.bench.plane import PODS, Extender, Plane, PodWatch, cpu_seconds, together
from tests.bench.report import Figure
from tests.cluster.gangshare import get

SIZES = (1_000, 5_000)
MARKS = {1_000: 2.5, 5_000: 3.0}
RATIOS: Mapping[int, float | None] = {1_000: None, 5_000: 0.9}
MEMBERS = 500
WARM, ROUNDS, BARE_ROUNDS = 20, 5, 3
AT_ONCE = 32
LOOK_S = 0.01
"""Seconds between looks at what is bound."""
VERDICT_S = 60.0
WRITTEN = {names.ALLOCATION: "x" * 250}
"""As much as an allocation of one GPU is."""


def gang(name: str, members: int, limits: Limits) -> Iterator[Json]:
    """The pods of a gang, by our own annotations."""
    for i in range(members):
        made = bodies.pod(f"{name}-{i:04}", limits)
        made["metadata"]["annotations"] = {names.GROUP: name, names.MIN_MEMBER: str(members)}
        yield made


async def _round(plane: Plane, extender: Extender) -> tuple[float, float]:
    """Seconds from letting kube-scheduler go until the first and until the last member was bound."""
    scheduler = plane.scheduler(extender)
    async with PodWatch.open(plane.api, every_s=LOOK_S) as watch:
        warm = [f"warm-{i:04}" for i in range(WARM)]
        await plane.create(PODS, (bodies.pod(name, {MEM: 1}) for name in warm))
        await watch.until_bound(warm)
        scheduler.process.pause()
        members = list(gang("gang", MEMBERS, {WHOLE: 1}))
        await plane.create(PODS, members)
        await plane.settled(extender)
        before = cpu_seconds(scheduler.process), cpu_seconds(extender.process)
        began = time.monotonic()
        scheduler.process.resume()
        await watch.until_bound(pod["metadata"]["name"] for pod in members)
        at = sorted(watch.bound[pod["metadata"]["name"]] - began for pod in members)
        after = cpu_seconds(scheduler.process), cpu_seconds(extender.process)
    scheduler.process.stop()
    await plane.delete_pods()
    cpu = f"scheduler {after[0] - before[0]:.1f} s of CPU, extender {after[1] - before[1]:.1f} s"
    print(f"  bound {at[0]:.2f} to {at[-1]:.2f} s after it was let go; {cpu}", flush=True)
    return at[0], at[-1]


async def _bare(plane: Plane) -> float:
    """Seconds from the first to the last of as many Bindings that nobody decides and nobody else watches."""
    pods = [bodies.pod(f"bare-{i:04}", {WHOLE: 1}) for i in range(MEMBERS)]
    await plane.create(PODS, pods)
    uids = await plane.uids()
    async with PodWatch.open(plane.api, every_s=LOOK_S) as watch:
        binds = (
            binding.bind(plane.api, namespace="default", name=name, uid=uid, node=f"node-{i:05}", annotations=WRITTEN)
            for i, (name, uid) in enumerate(uids.items())
        )
        await together(binds, AT_ONCE)
        await watch.until_bound(uids)
        took = max(watch.bound.values()) - min(watch.bound.values())
    await plane.delete_pods()
    return took


async def _alone(plane: Plane, extender: Extender) -> float:
    """Seconds from letting kube-scheduler go until the last of as many single pods is bound, while we stand still."""
    extender.process.pause()
    async with ways.running(plane, ways.ALONE, every_s=LOOK_S) as now:
        burst = await now.burst(bodies.pod(f"pod-{i:04}", {WHOLE: 1}) for i in range(MEMBERS))
    print(f"  {MEMBERS} single pods, {ways.ALONE.name}: {burst.told}", flush=True)
    extender.process.resume()
    return burst.last_s


async def _start(plane: Plane, extender: Extender, nodes: int, bare: float) -> list[Figure]:
    """Medians, in turn with kube-scheduler alone; `bare` is what the Bindings alone take."""
    rounds, alone = [], []
    for number in range(ROUNDS):
        if number % 2:
            alone.append(await _alone(plane, extender))
        rounds.append(await _round(plane, extender))
        if not number % 2:
            alone.append(await _alone(plane, extender))
    label = f"gang of {MEMBERS}, {nodes:,} nodes"
    skew, last = statistics.median(last - first for first, last in rounds), statistics.median(r[1] for r in rounds)
    singles = statistics.median(alone)
    return [
        Figure(f"{label}: let go → last bound", last, "s", mark=MARKS[nodes]),
        Figure(f"{MEMBERS} single pods, {nodes:,} nodes, {ways.ALONE.name}: let go → last bound", singles, "s"),
        Figure(f"{label}: gang with us / single pods alone", last / singles, "", mark=RATIOS[nodes]),
        Figure(f"{label}: first bound → last bound", skew, "s", mark=1.0),
        Figure(f"{label}: the same against a client that only posts {MEMBERS} Bindings", skew / bare, "×"),
    ]


async def _verdict(plane: Plane, extender: Extender, name: str, members: int, limits: Limits, mark: float) -> Figure:
    """From the last member's coming until the extender tells why the gang waits, with numbers."""
    scheduler = plane.scheduler(extender)
    await plane.create(PODS, gang(name, members, limits))
    began = time.monotonic()
    while "short by" not in (told := _told(extender, name)):
        if time.monotonic() > began + VERDICT_S:
            raise TimeoutError(f"no verdict on {name} after {VERDICT_S:g} s: {told}")
        await asyncio.sleep(0.01)
    took = time.monotonic() - began
    print(f"  {name}: {json.loads(told)['numbers']}", flush=True)
    scheduler.process.stop()
    await plane.delete_pods()
    return Figure(f"gang of {members}, 1,000 nodes: cannot fit ({name}) → told", took, "s", mark=mark)


def _told(extender: Extender, name: str) -> str:
    try:
        return str(get(extender.status, f"/explain/groups/default/{name}"))
    except OSError:
        return ""


async def _measure() -> list[Figure]:
    figures = []
    for nodes in SIZES:
        async with Plane() as plane:
            await plane.create(paths.nodes(), (bodies.node(f"node-{i:05}") for i in range(nodes)))
            bare = statistics.median([await _bare(plane) for _ in range(BARE_ROUNDS)])
            print(f"  {MEMBERS} Bindings alone: {bare:.2f} s", flush=True)
            extender = plane.extender()
            extender.start()
            figures += await _start(plane, extender, nodes, bare)
            if nodes == SIZES[0]:
                figures.append(await _verdict(plane, extender, "too-big", MEMBERS, {WHOLE: bodies.GPUS + 1}, 1.0))
                figures.append(await _verdict(plane, extender, "one-short", nodes + 1, {WHOLE: bodies.GPUS}, 2.0))
            extender.process.stop()
    return figures


def run() -> list[Figure]:
    """Start, skew and verdicts."""
    return uvloop.run(_measure())
