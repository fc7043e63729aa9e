"""Arrival by arrival: what is allocated once so much has come, and how much of what is idle is fragments."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from extender.sim.openb import baselines, fragment, trace, workload
from extender.sim.openb.choices import Policy
from extender.sim.openb.cluster import Cluster, Spot
from extender.sim.openb.fragment import Fragmentation
from extender.sim.openb.ours import Gangshare
from extender.sim.openb.ranking import Ranked
from extender.sim.openb.trace import Node, Pod

COLUMNS = (95, 100, 130)
"""Arrived %, at which results are compared."""


class Row(NamedTuple):
    """The state while so much had arrived: means over the arrivals that round to it, all in %."""

    arrived: int
    """GPU demand that has come, of the capacity."""
    allocated: float
    """GPU given away, of the capacity."""
    fragments: float
    """What is of no use to the typical workload, of the idle GPU."""


class Placer(Protocol):
    """Whoever decides; what it chooses is carried out before it is asked again."""

    def choose(self, pod: Pod) -> Spot | None: ...


class Run(NamedTuple):
    """What is replayed."""

    nodes: Sequence[Node]
    pods: Sequence[Pod]
    """The list, before it is shuffled and inflated."""
    policy: Policy = "gangshare"
    seed: int = 42
    inflate: float = 130.0
    """How much arrives at most, in % of the GPUs."""


def replay(run: Run, placer: Placer | None = None) -> list[Row]:
    """The curve: a row for each whole % that has arrived, from 0 on. `placer` decides instead of the run's policy."""
    cluster = Cluster(run.nodes)
    fragmentation = Fragmentation(fragment.typical(run.pods))
    placer = placer or _placer(run, cluster, fragmentation)
    curve = _Curve(cluster, fragmentation)
    for pod in workload.arrivals(run.pods, run.nodes, run.seed, run.inflate):
        spot = placer.choose(pod)
        if spot is not None:
            curve.leave(spot.node)
            cluster.take(spot, pod.spec)
            curve.come(spot.node)
        curve.note(pod, placed=spot is not None)
    return curve.rows()


def at(rows: Iterable[Row], columns: Sequence[int] = COLUMNS) -> dict[int, float | None]:
    """Allocated % at these columns, None where so much never arrived."""
    known = {row.arrived: row.allocated for row in rows}
    return {column: known.get(column) for column in columns}


def _placer(run: Run, cluster: Cluster, fragmentation: Fragmentation) -> Placer:
    if run.policy == "gangshare":
        return Gangshare(cluster)
    if run.policy == "random":
        draw = random.Random(f"policy of {run.seed}")
        return Ranked(cluster, baselines.Random(draw), draw)
    if run.policy == "fgd":
        return Ranked(cluster, baselines.Fgd(fragmentation))
    return Ranked(cluster, _SCORED[run.policy]())


_SCORED: Mapping[str, Callable[[], baselines.Policy]] = {
    "bestfit": baselines.BestFit,
    "dotprod": baselines.DotProd,
    "packing": baselines.Packing,
    "clustering": baselines.Clustering,
}


class _Sums:
    """Of the arrivals that round to one column."""

    def __init__(self) -> None:
        self.arrivals, self.allocated, self.fragments = 0, 0.0, 0.0

    def row(self, column: int) -> Row:
        return Row(column, self.allocated / self.arrivals, self.fragments / self.arrivals)


class _Curve:
    """Sums that follow the cluster."""

    def __init__(self, cluster: Cluster, fragmentation: Fragmentation) -> None:
        self._cluster, self._fragmentation = cluster, fragmentation
        self._capacity = trace.capacity(cluster.nodes)
        self._arrived = self._allocated = self._fragments = 0
        for node in range(len(cluster.nodes)):
            self.come(node)
        self._columns: dict[int, _Sums] = {}

    def leave(self, node: int) -> None:
        """The node is about to change."""
        self._fragments -= self._of(node)

    def come(self, node: int) -> None:
        """The node has changed."""
        self._fragments += self._of(node)

    def _of(self, node: int) -> int:
        room = self._cluster.rooms[node]
        return self._fragmentation.of(room.cpu, room.gpus, room.model)

    def note(self, pod: Pod, *, placed: bool) -> None:
        """The pod has come, and was placed or dropped."""
        self._arrived += pod.spec.gpu_milli
        self._allocated += pod.spec.gpu_milli if placed else 0
        idle = self._capacity - self._allocated
        sums = self._columns.setdefault(round(100 * self._arrived / self._capacity), _Sums())
        sums.arrivals += 1
        sums.allocated += 100 * self._allocated / self._capacity
        sums.fragments += 100 * self._fragments / self._fragmentation.weight / idle if idle else 0.0

    def rows(self) -> list[Row]:
        """In order; where one arrival passed a whole column, that before it goes on."""
        found: list[Row] = []
        before = Row(0, 0.0, 0.0)
        for column in range(max(self._columns, default=-1) + 1):
            sums = self._columns.get(column)
            before = sums.row(column) if sums else before._replace(arrived=column)
            found.append(before)
        return found
