"""The extender's start and its memory, at 5,000 nodes of 8 GPUs and 20,000 bound pods, against a real API server.

Ready means that /readyz answers 200, the start of the interpreter included. The peak of resident memory is read after
each size of ask was filtered over all nodes and Prometheus has asked once: what a day brings, not only the start.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import urllib.request
from typing import NamedTuple

from extender.wire import shapes
from protos.contract.objects import decode_pod
from protos.kube import binding, paths
from tests.bench import bodies
from tests.bench.bodies import Json
from tests.bench.fleet import MIXED, Fleet
from tests.bench.plane import PODS, Extender, Plane, cpu_seconds, together
from tests.bench.report import Figure
from tests.cluster.gangshare import get

NODES, BOUND = 5_000, 20_000
STARTS = 3


async def _bind(plane: Plane, running: Json) -> None:
    """Create a pod and bind it as the extender does; an allocation that came otherwise would be a forgery."""
    name, annotations = running["metadata"]["name"], running["metadata"]["annotations"]
    pending = {**running["spec"], "nodeName": ""}
    made = await plane.api.post(PODS, {**bodies.pod(name, {}), "spec": pending})
    uid = decode_pod(made).metadata.uid
    await binding.bind(
        plane.api, namespace="default", name=name, uid=uid, node=running["spec"]["nodeName"], annotations=annotations
    )


def _work(extender: Extender, nodes: list[str]) -> None:
    """Ask what is asked in ordinary life."""
    for i, limits in enumerate(MIXED):
        asked = {"Pod": bodies.stored(bodies.pod(f"asked-{i}", limits)), "Nodes": None, "NodeNames": nodes}
        request = urllib.request.Request(f"{extender.url}/scheduler/filter", shapes.encode(asked))
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
    get(extender.status, "/metrics")


class Start(NamedTuple):
    """One life of an extender."""

    seconds: float
    cpu_s: float
    """The extender's own part of it."""
    peak_mib: float


def _start(extender: Extender, nodes: list[str]) -> Start:
    try:
        seconds = extender.start()
        cpu = cpu_seconds(extender.process)
        _work(extender, nodes)
        return Start(seconds, cpu, extender.peak_mib())
    finally:
        extender.process.stop()


async def _measure(nodes: int, pods: int) -> list[Start]:
    fleet = Fleet(nodes, pods)
    async with Plane() as plane:
        began = time.monotonic()
        await plane.create(paths.nodes(), map(bodies.node, fleet.names))
        await together(_bind(plane, pod) for pod in fleet.bound)
        print(f"  {nodes:,} nodes and {pods:,} pods made in {time.monotonic() - began:.0f} s", flush=True)
        extender = plane.extender()
        return [_start(extender, fleet.names) for _ in range(STARTS)]


def figures(nodes: int, pods: int, seconds: float, mib: float) -> list[Figure]:
    """The median start, and the largest peak, with their marks."""
    starts = asyncio.run(_measure(nodes, pods))
    usual = statistics.median_low(starts)
    label = f"extender, {nodes:,} nodes, {pods:,} pods"
    return [
        Figure(f"{label}: start to ready", usual.seconds, "s", mark=seconds),
        Figure(f"{label}: its own CPU time until then", usual.cpu_s, "s"),
        Figure(f"{label}: peak memory", max(start.peak_mib for start in starts), "MiB", mark=mib),
    ]


def run() -> list[Figure]:
    """At the size that the budget names."""
    return figures(NODES, BOUND, 15.0, 400.0)
