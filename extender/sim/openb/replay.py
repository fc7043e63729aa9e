"""Arrival by arrival: how much GPU is allocated at each arrived demand, and how much of the idle GPU is fragmented."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from extender.sim.openb import baselines, fragment, trace, workload
from extender.sim.openb.choices import Policy
from extender.sim.openb.cluster import Assignment, Cluster
from extender.sim.openb.fragment import Fragmentation
from extender.sim.openb.ours import Gangshare
from extender.sim.openb.ranking import Ranked
from extender.sim.openb.trace import Node, Pod
from extender.sim.progress import Progress, silent

COLUMNS = (95, 100, 130)
"""Arrived %, at which results are compared."""


class Row(NamedTuple):
    """Means over the arrivals that round to one arrived %, all in %."""

    arrived: int
    """Arrived GPU demand, of the capacity."""
    allocated: float
    """Allocated GPU, of the capacity."""
    fragments: float
    """GPU that the typical workload cannot use, of the idle GPU."""


class Placer(Protocol):
    """Chooses assignments. Each choice is carried out before the next."""

    def choose(self, pod: Pod) -> Assignment | None: ...


class Run(NamedTuple):
    """The input of a replay."""

    nodes: Sequence[Node]
    pods: Sequence[Pod]
    """The list, before it is shuffled and inflated."""
    policy: Policy = "gangshare"
    seed: int = 42
    inflate: float = 130.0
    """Largest demand that arrives, in % of the GPUs."""


def replay(run: Run, placer: Placer | None = None, progress: Progress = silent) -> list[Row]:
    """The curve: one row for each whole arrived %, from 0. A `placer` replaces the run's policy."""
    cluster = Cluster(run.nodes)
    fragmentation = Fragmentation(fragment.typical(run.pods))
    placer = placer or _placer(run, cluster, fragmentation)
    curve = _Curve(cluster, fragmentation)
    coming = workload.arrivals(run.pods, run.nodes, run.seed, run.inflate)
    for arrived, pod in enumerate(coming, 1):
        assignment = placer.choose(pod)
        if assignment is not None:
            cluster.take(assignment, pod.spec)
            curve.measure(assignment.node)
        curve.add(pod, placed=assignment is not None)
        progress(arrived, len(coming))
    return curve.rows()


def at(rows: Iterable[Row], columns: Sequence[int] = COLUMNS) -> dict[int, float | None]:
    """Allocated % at these arrived %, None where the demand was never reached."""
    allocated = {row.arrived: row.allocated for row in rows}
    return {column: allocated.get(column) for column in columns}


def _placer(run: Run, cluster: Cluster, fragmentation: Fragmentation) -> Placer:
    if run.policy == "gangshare":
        return Gangshare(cluster)
    if run.policy == "random":
        draw = random.Random(f"policy of {run.seed}")
        return Ranked(cluster, baselines.at_random(draw), draw)
    if run.policy == "fgd":
        return Ranked(cluster, baselines.fgd(fragmentation))
    return Ranked(cluster, baselines.Policy(baselines.SCORES[run.policy]))


class _Sums(msgspec.Struct):
    """Sums over the arrivals that round to one arrived %."""

    arrivals: int = 0
    allocated: float = 0.0
    fragments: float = 0.0


class _Curve:
    """Follows the cluster arrival by arrival."""

    def __init__(self, cluster: Cluster, fragmentation: Fragmentation) -> None:
        self._cluster, self._fragmentation = cluster, fragmentation
        self._capacity = trace.capacity(cluster.nodes)
        self._arrived = self._allocated = self._fragments = 0
        self._fragments_of = [0] * len(cluster.nodes)
        for node in range(len(cluster.nodes)):
            self.measure(node)
        self._columns: dict[int, _Sums] = {}

    def measure(self, node: int) -> None:
        """Measure the fragments of a changed node."""
        room = self._cluster.rooms[node]
        measured = self._fragmentation.of(room.cpu, room.gpus, room.model)
        self._fragments += measured - self._fragments_of[node]
        self._fragments_of[node] = measured

    def add(self, pod: Pod, *, placed: bool) -> None:
        """Add an arrival, placed or dropped."""
        self._arrived += pod.spec.gpu_milli
        self._allocated += pod.spec.gpu_milli if placed else 0
        idle = self._capacity - self._allocated
        sums = self._columns.setdefault(round(100 * self._arrived / self._capacity), _Sums())
        sums.arrivals += 1
        sums.allocated += 100 * self._allocated / self._capacity
        sums.fragments += 100 * self._fragments / self._fragmentation.weight / idle if idle else 0.0

    def rows(self) -> list[Row]:
        """In order. A % that no arrival rounds to repeats the row before it."""
        found: list[Row] = []
        row = Row(0, 0.0, 0.0)
        for column in range(max(self._columns, default=-1) + 1):
            sums = self._columns.get(column)
            row = row._replace(arrived=column)
            if sums:
                row = Row(column, sums.allocated / sums.arrivals, sums.fragments / sums.arrivals)
            found.append(row)
        return found
