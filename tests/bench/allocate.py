"""Allocate of the real plugin process, as a kubelet sees it: from its call over the unix socket to the answer.

The embedded cluster's kubelet calls, with its API server and scheduler in the same process, the real extender beside.
Pods come in bursts; every second one asks two resources, which is two Allocates, and every fourth has two containers.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from unittest import mock

from extender.sim.kubelet.devices import DeviceManager
from extender.sim.kubelet.status import NodeSpec
from tests.bench.fleet import MEM, SLICE
from tests.bench.report import Figure, percentile
from tests.scenarios.embedded import a_cluster
from tests.scenarios.pods import a_container, a_pod

BURSTS, EACH = 10, 30
BURST_S = 60.0


class _Timed:
    """Stands in for DeviceManager's call of Allocate, and times it."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._ask = DeviceManager._ask

    def method(self) -> Any:
        async def ask(manager: DeviceManager, resource: str, ids: set[str]) -> Any:
            began = time.perf_counter()
            answer = await self._ask(manager, resource, ids)
            self.seconds.append(time.perf_counter() - began)
            return answer

        return ask


def _burst(number: int) -> list[dict[str, Any]]:
    pods = []
    for i in range(EACH):
        limits = {MEM: 1, SLICE: 1} if i % 2 else {MEM: 2}
        containers = [a_container(name, limits) for name in ("main", "twin")[: 1 + (i % 4 == 0)]]
        pods.append(a_pod(f"pod-{number}-{i}", *containers))
    return pods


async def _measure() -> list[float]:
    timed = _Timed()
    with mock.patch.object(DeviceManager, "_ask", timed.method()):
        async with a_cluster(NodeSpec(name="node-1", profile="hgx-h200")) as cluster:
            for number in range(BURSTS):
                for pod in _burst(number):
                    cluster.create_pod(pod)
                await cluster.wait(
                    lambda: len([p for p in cluster.pods() if p["status"]["phase"] == "Running"]) == EACH,
                    BURST_S,
                    f"{EACH} running pods",
                )
                for pod in cluster.pods():
                    cluster.delete_pod("default", pod["metadata"]["name"], 0)
                await cluster.wait(lambda: not cluster.pods(), BURST_S, "no pods")
    return timed.seconds


def run() -> list[Figure]:
    """p50 and p99."""
    milliseconds = [1000 * value for value in asyncio.run(_measure())]
    label = f"Allocate, {len(milliseconds)} calls in bursts of {EACH} pods"
    return [
        Figure(f"{label}: p50", percentile(milliseconds, 0.5), "ms"),
        Figure(f"{label}: p99", percentile(milliseconds, 0.99), "ms", mark=50.0),
    ]
