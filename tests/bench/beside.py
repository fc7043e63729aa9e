"""What others feel of gangs that start or wait, with a real kube-scheduler.

An ordinary pod that comes while 200 members are held in bind; and a gang that waits for room, alone and with hundreds
of other waiting pods, when the room appears.
"""

from __future__ import annotations

import asyncio
import json
import time

from protos.kube import paths
from tests.bench import bodies
from tests.bench.bodies import Json
from tests.bench.fleet import MEM, WHOLE
from tests.bench.gang import gang
from tests.bench.plane import NOW, PODS, Extender, Plane, PodWatch
from tests.bench.report import Figure
from tests.bench.wake import IDLE_S
from tests.cluster.gangshare import get

NODES, HELD, TIMES = 100, 200, 5
GANG, OTHERS = 8, 500
ALL = {WHOLE: bodies.GPUS}
HELD_S = 60.0


def _late(members: list[Json]) -> list[Json]:
    """Of these members one never comes to its bind: kube-scheduler does not find its volume claim."""
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}
    members[-1]["spec"]["volumes"].append(claim)
    return members


async def _ordinary(plane: Plane, extender: Extender) -> float:
    """The slowest of some ordinary pods, from creation to bound, while members are held; in s."""
    scheduler = plane.scheduler(extender)
    async with PodWatch.open(plane.api) as watch:
        await plane.create(PODS, _late(list(gang("held", HELD + 1, {WHOLE: 1}))))
        await _until_held(extender)
        slowest = 0.0
        for i in range(TIMES):
            name, began = f"ordinary-{i}", time.monotonic()
            await plane.create(PODS, [bodies.pod(name, {MEM: 1})])
            await watch.until_bound([name])
            slowest = max(slowest, watch.bound[name] - began)
        if _held(extender) < HELD:
            raise RuntimeError(f"expected {HELD} members to be held all the time, {_held(extender)} are")
    scheduler.process.stop()
    await plane.delete_pods()
    return slowest


async def _until_held(extender: Extender) -> None:
    deadline = time.monotonic() + HELD_S
    while _held(extender) < HELD:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{_held(extender)} of {HELD} members were held after {HELD_S:g} s")
        await asyncio.sleep(0.05)


def _held(extender: Extender) -> int:
    try:
        told = json.loads(get(extender.status, "/explain/groups/default/held"))
    except OSError:
        return 0
    return sum(member["stage"] == "In_bind" for member in told["members"])


async def _freed(plane: Plane, extender: Extender, others: int) -> float:
    """From asking for one pod's deletion until a gang that waits for its node is bound to the last member; in s."""
    scheduler = plane.scheduler(extender)
    async with PodWatch.open(plane.api) as watch:
        fillers = [f"filler-{i:04}" for i in range(NODES)]
        await plane.create(PODS, (bodies.pod(name, ALL) for name in fillers))
        await watch.until_bound(fillers)
        waiting = [f"waiting-{i:04}" for i in range(others)]
        await plane.create(PODS, (bodies.pod(name, {WHOLE: bodies.GPUS + 1}) for name in waiting))
        members = list(gang(f"gang-{others}", GANG, {WHOLE: 1}))
        await plane.create(PODS, members)
        names = [pod["metadata"]["name"] for pod in members]
        await watch.until_refused([*waiting, *names])
        await asyncio.sleep(IDLE_S)
        freed = time.monotonic()
        await plane.api.delete(paths.pod("default", fillers[0]), params=NOW)
        await watch.until_bound(names)
        took = max(watch.bound[name] for name in names) - freed
    scheduler.process.stop()
    await plane.delete_pods()
    return took


async def _measure() -> list[Figure]:
    async with Plane() as plane:
        await plane.create(paths.nodes(), (bodies.node(f"node-{i:05}") for i in range(NODES)))
        extender = plane.extender()
        extender.start()
        slowest = await _ordinary(plane, extender)
        alone, among = [await _freed(plane, extender, others) for others in (0, OTHERS)]
    freed = f"room freed → gang of {GANG} bound, {NODES} full nodes"
    return [
        Figure(f"ordinary pod beside {HELD} held members, {TIMES} times: slowest", slowest, "s", mark=1.0),
        Figure(f"{freed}", alone, "s", mark=1.0),
        Figure(f"{freed}, {OTHERS} others waiting", among, "s"),
    ]


def run() -> list[Figure]:
    """The ordinary pod first."""
    return asyncio.run(_measure())
