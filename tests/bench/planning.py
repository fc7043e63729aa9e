"""The plan of one gang of 512, at 5,000 nodes and 20,000 pods, in the process: in all, and its longest slice.

Nobody asked for its members' kind before, and no gang is like another: three of each kind that ask different amounts of
CPU, of which the median counts.

A plan waits for nothing, so its mark is held against CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import msgspec

from extender.engine.types.events import PodSeen, PodsListed, Tick
from extender.engine.types.settings import Settings
from extender.server.garbage import Garbage
from extender.steps import Steps
from protos.contract.objects import decode_pod
from tests.bench import bodies
from tests.bench.bodies import Limits
from tests.bench.fleet import DEFAULTS, MEM, WHOLE, Fleet
from tests.bench.gang import gang
from tests.bench.report import Figure

NODES, PODS, MEMBERS = 5_000, 20_000, 512
CPUS = (200, 300, 400)
MARK_MS = 100.0
WARM_TICKS = 400
"""It has run for some 80 s."""
ASKS: tuple[tuple[str, Limits], ...] = (
    ("one GPU", {WHOLE: 1}),
    ("a node's eight GPUs", {WHOLE: bodies.GPUS}),
    ("10 of a GPU's 79", {MEM: 10}),
)


def _slices(fleet: Fleet, name: str, limits: Limits, cpu: int) -> Iterator[float]:
    """CPU seconds of each slice, from the last member's coming until the whole gang has a place.

    Each member asks `cpu` thousandths of a core.
    """
    engine = fleet.engine
    members = [bodies.stored(pod) for pod in gang(name, MEMBERS, limits)]
    for pod in members:
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{cpu}m"
    uids = [pod["metadata"]["uid"] for pod in members]
    seen = [PodSeen(decode_pod(msgspec.json.encode(pod))) for pod in members]
    for event in seen[:-1]:
        engine.step(event, time.monotonic())
    while engine.run_slice(time.monotonic()):
        pass
    engine.step(seen[-1], time.monotonic())
    more = True
    while more:
        began = time.thread_time()
        more = engine.run_slice(time.monotonic())
        yield time.thread_time() - began
    if any(engine.pods[uid].node == "" for uid in uids):
        raise RuntimeError(f"{name}: expected a place for all {MEMBERS} members")


def run() -> list[Figure]:
    """For several kinds of members, without and with racks to keep them in."""
    racks = Settings(locality_labels=(bodies.RACK,))
    return [*figures(NODES, PODS, "", DEFAULTS), *figures(NODES, PODS, ", kept in few racks", racks)]


def figures(nodes: int, pods: int, told: str, settings: Settings, *, mark: float = MARK_MS) -> list[Figure]:
    """Of one size."""
    fleet = Fleet(nodes, pods, settings)
    fleet.engine.step(PodsListed(), time.monotonic())
    for _ in range(WARM_TICKS):
        fleet.engine.step(Tick(), time.monotonic())
    Garbage(Steps()).settle()
    found: list[Figure] = []
    for number, (each, limits) in enumerate(ASKS):
        plans = [list(_slices(fleet, f"gang-{number}-{i}", limits, cpu)) for i, cpu in enumerate(CPUS)]
        label = f"plan of a gang of {MEMBERS}, {nodes:,} nodes, {pods:,} pods, each {each}{told}"
        found.append(Figure(label, 1000 * median(map(sum, plans)), "ms", mark=mark))
        found.append(Figure(f"{label}: longest slice", 1000 * median(map(max, plans)), "ms"))
    return found
