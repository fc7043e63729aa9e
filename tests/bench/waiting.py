"""What waiting members of gangs cost everybody else, behind our scheduling gate and without it; a real kube-scheduler.

Four gangs of 500 that do not fit wait, bound pods change 50 times a second, and now and then an ordinary pod comes.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import NamedTuple

from protos.contract import names
from protos.kube import paths
from tests.bench import bodies
from tests.bench.bodies import Json
from tests.bench.fleet import MEM, WHOLE
from tests.bench.gang import gang
from tests.bench.plane import PODS, Extender, Plane, PodWatch, cpu_seconds
from tests.bench.report import Figure, percentile
from tests.cluster.gangshare import get
from tests.scenarios.world import filters

NODES, GANGS, MEMBERS = 60, 4, 500
"""60 nodes have 480 GPUs: one gang wants 500."""
UPDATES, QUIET_S = 50, 20.0
"""Changes of bound pods per second; before them nothing happens for a while."""
SECONDS = {True: 60.0, False: 30.0}
ORDINARY_EVERY_S = 3.0


class Cost(NamedTuple):
    """Of one kind of waiting."""

    members: int
    """Questions about waiting members."""
    seconds: float
    delays: list[float]
    """Of ordinary pods, from their creation until they were bound, in s."""
    scheduler: float
    extender: float
    """CPU while pods change, as parts of one core."""
    quiet: float
    """The extender's while nothing happens."""
    writes: int
    """The extender's while nothing happens."""


def _waiting(gated: bool) -> list[Json]:
    made = [pod for i in range(GANGS) for pod in gang(f"gang-{i}", MEMBERS, {WHOLE: 1})]
    for pod in made if gated else ():
        pod["spec"]["schedulingGates"] = [{"name": names.PLAN_GATE}]
    return made


async def _change(plane: Plane, running: list[str]) -> None:
    """Bound pods change, for ever."""
    began = time.monotonic()
    for turn in itertools.count():
        body = {"metadata": {"labels": {"turn": str(turn)}}}
        await plane.api.patch(paths.pod("default", running[turn % len(running)]), body)
        await asyncio.sleep(max(0.0, began + turn / UPDATES - time.monotonic()))


async def _ordinary(plane: Plane, watch: PodWatch, seconds: float) -> list[float]:
    delays = []
    for i in range(int(seconds / ORDINARY_EVERY_S)):
        name, at = f"ordinary-{i:03}", time.monotonic()
        await plane.create(PODS, [bodies.pod(name, {MEM: 1})])
        await watch.until_bound([name])
        delays.append(watch.bound[name] - at)
        await asyncio.sleep(max(0.0, at + ORDINARY_EVERY_S - time.monotonic()))
    return delays


def _asked(extender: Extender) -> int:
    return filters(get(extender.status, "/metrics"))


async def _measure(gated: bool) -> Cost:
    async with Plane(audited=True) as plane:
        await plane.create(paths.nodes(), (bodies.node(f"node-{i:05}") for i in range(NODES)))
        extender = plane.extender()
        extender.start()
        scheduler = plane.scheduler(extender)
        async with PodWatch.open(plane.api) as watch:
            running = [f"running-{i:03}" for i in range(UPDATES)]
            await plane.create(PODS, (bodies.pod(name, {MEM: 1}) for name in running))
            await watch.until_bound(running)
            waiting = _waiting(gated)
            await plane.create(PODS, waiting)
            if not gated:
                await watch.until_refused(pod["metadata"]["name"] for pod in waiting)
            await asyncio.sleep(5)
            cpu, writes, at = cpu_seconds(extender.process), plane.writes("gangshare-extender"), time.monotonic()
            await asyncio.sleep(QUIET_S)
            quiet = (cpu_seconds(extender.process) - cpu) / (time.monotonic() - at)
            writes = plane.writes("gangshare-extender") - writes
            before = _asked(extender), cpu_seconds(scheduler.process), cpu_seconds(extender.process)
            at, changing = time.monotonic(), asyncio.create_task(_change(plane, running))
            delays = await _ordinary(plane, watch, SECONDS[gated])
            took = time.monotonic() - at
            changing.cancel()
            after = _asked(extender), cpu_seconds(scheduler.process), cpu_seconds(extender.process)
    asked, scheduling, deciding = (after[i] - before[i] for i in range(3))
    return Cost(int(asked) - len(delays), took, delays, scheduling / took, deciding / took, quiet, writes)


def _figures(cost: Cost, gated: bool) -> list[Figure]:
    label = f"{GANGS * MEMBERS:,} members wait {'gated' if gated else 'ungated'}"
    changing = f"{label}, {UPDATES} changes/s"
    return [
        Figure(f"{label}: extender's CPU", 100 * cost.quiet, "% of a core", mark=2.0 if gated else None),
        Figure(f"{label}: extender's writes in {QUIET_S:g} s", cost.writes, "", mark=0.0 if gated else None),
        Figure(f"{changing}: questions about them", cost.members / cost.seconds, "/s", mark=0.0 if gated else None),
        Figure(f"{changing}: ordinary pod bound, p50", 1000 * percentile(cost.delays, 0.5), "ms"),
        Figure(f"{changing}: ordinary pod bound, slowest", 1000 * max(cost.delays), "ms"),
        Figure(f"{changing}: kube-scheduler's CPU", 100 * cost.scheduler, "% of a core"),
        Figure(f"{changing}: extender's CPU", 100 * cost.extender, "% of a core"),
    ]


def run() -> list[Figure]:
    """Behind the gate first."""
    return [figure for gated in (True, False) for figure in _figures(asyncio.run(_measure(gated)), gated)]
