"""Allocate of the real plugin process, as a kubelet sees it: from its call over the unix socket to the answer.

The embedded cluster's kubelet calls, with its API server and scheduler in the same process, the real extender beside.
Pods come in bursts; every second one asks two resources, which is two Allocates, and every fourth has two containers.
Once the node is as it comes, once with all that isolates and tells: limits of the driver, CDI devices in annotations,
the list of true GPUs, and MPS with a stand-in of its control daemon. There containers start later, once they are
admitted: each command of the stand-in starts an interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import yaml

from deviceplugin import fake
from extender.sim.cluster import EmbeddedCluster
from extender.sim.kubelet.devices import DeviceManager
from extender.sim.kubelet.status import NodeSpec
from protos.contract import names
from tests.bench.fleet import MEM, SLICE
from tests.bench.plane import peak_mib
from tests.bench.report import Figure, percentile
from tests.scenarios.embedded import a_cluster
from tests.scenarios.pods import a_container, a_pod
from tests.unit.deviceplugin.fake_nvml import Gpu
from tests.unit.deviceplugin.mps.conftest import World

BURSTS, EACH = 10, 30
BURST_S = 60.0
NODE, PROFILE = "node-1", "hgx-h200"
ALLOCATE_MS, PLUGIN_MIB = 50.0, 120.0


Made = tuple[NodeSpec, World | None]
"""A node, and its MPS."""


class Measured(NamedTuple):
    """What the plugin needed."""

    milliseconds: list[float]
    """Of each Allocate."""
    peak_mib: float
    """Resident memory of its process."""


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


@contextlib.asynccontextmanager
async def _plain() -> AsyncIterator[Made]:
    yield NodeSpec(name=NODE, profile=PROFILE), None


@contextlib.asynccontextmanager
async def _with_all(mps: bool) -> AsyncIterator[Made]:
    """A node whose plugin has everything switched on; MPS only with `mps`, since its stand-in is slow."""
    with tempfile.TemporaryDirectory(prefix="all", dir="/tmp") as path, mock.patch.dict("os.environ"):
        folder = Path(path)
        profile = {**yaml.safe_load(fake.find(PROFILE).read_text()), "driver": "615.71.05", "toolkit": "1.20.1"}
        (folder / "profile.yaml").write_text(yaml.safe_dump(profile))
        spec = NodeSpec(name=NODE, profile=str(folder / "profile.yaml"), labels={names.MPS: "true"} if mps else {})
        uuids = [gpu.uuid for gpu in fake.FakeSource(spec.profile, NODE).read().gpus]
        (folder / "cgroup" / "kubepods.slice").mkdir(parents=True)
        (folder / "cgroup" / "cgroup.controllers").write_text("cpu memory\n")
        (folder / "cdi").mkdir()
        devices = [{"name": uuid, "containerEdits": {}} for uuid in uuids]
        (folder / "cdi" / "gpus.json").write_text(json.dumps({"kind": names.CDI_KIND, "devices": devices}))
        os.environ |= {
            "GANGSHARE_ISOLATION": "driver",
            "GANGSHARE_CGROUP_ROOT": str(folder / "cgroup"),
            "GANGSHARE_DEVICE_LIST_STRATEGY": "cdi-annotations",
            "GANGSHARE_CDI_SPEC_DIRS": str(folder / "cdi"),
            "GANGSHARE_SERVE_POD_RESOURCES": str(folder / "served" / "kubelet.sock"),
        }
        if not mps:
            yield spec, None
            return
        os.environ["GANGSHARE_MPS_DIR"] = path
        world = World(folder, 3)
        world.nvml.gpus = [Gpu(index, uuid=uuid) for index, uuid in enumerate(uuids)]
        async with world.running():
            yield spec, world


async def _measure(node: contextlib.AbstractAsyncContextManager[Made]) -> Measured:
    timed = _Timed()
    with mock.patch.object(DeviceManager, "_ask", timed.method()):
        async with node as (spec, mps), a_cluster(spec) as cluster:
            if mps is not None:
                for gpu in mps.nvml.gpus:
                    await mps.phase("serving", gpu.get("uuid"))
            for number in range(BURSTS):
                await _run(cluster, number)
            plugin = cluster.node(NODE).plugin
            assert plugin is not None
            peak = peak_mib(plugin.pid)
    return Measured([1000 * value for value in timed.seconds], peak)


async def _run(cluster: EmbeddedCluster, number: int) -> None:
    """One burst of pods, until all of them ran."""
    for pod in _burst(number):
        cluster.create_pod(pod)
    running = f"{EACH} running pods"
    await cluster.wait(lambda: sum(p["status"]["phase"] == "Running" for p in cluster.pods()) == EACH, BURST_S, running)
    for pod in cluster.pods():
        cluster.delete_pod("default", pod["metadata"]["name"], 0)
    await cluster.wait(lambda: not cluster.pods(), BURST_S, "no pods")


def run() -> list[Figure]:
    """p50, p99 and the plugin's memory."""
    return [
        *_figures("", asyncio.run(_measure(_plain()))),
        *_figures(" with all but MPS", asyncio.run(_measure(_with_all(mps=False)))),
        *_figures(" with all and a stand-in of MPS", asyncio.run(_measure(_with_all(mps=True)))),
    ]


def _figures(how: str, found: Measured) -> list[Figure]:
    label = f"Allocate{how}, {len(found.milliseconds)} calls in bursts of {EACH} pods"
    return [
        Figure(f"{label}: p50", percentile(found.milliseconds, 0.5), "ms"),
        Figure(f"{label}: p99", percentile(found.milliseconds, 0.99), "ms", mark=ALLOCATE_MS),
        Figure(f"{label}: peak memory of the plugin", found.peak_mib, "MiB", mark=PLUGIN_MIB),
    ]
