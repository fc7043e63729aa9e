"""Containers of the library are checked like those of the driver: the region and the driver's processes tell."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest_asyncio

from deviceplugin.checkpoint import Entry
from deviceplugin.cluster import Cluster
from deviceplugin.devices import Sharing
from deviceplugin.health import Health
from deviceplugin.isolation import readback
from deviceplugin.isolation.checks import STATES
from deviceplugin.isolation.levels import Mode
from deviceplugin.isolation.probe import Probe
from deviceplugin.isolation.readback import ReadBack
from deviceplugin.isolation.watch import Watch
from deviceplugin.library.probe import Probe as LibraryProbe
from deviceplugin.library.prover import LibraryProver
from deviceplugin.library.regions import Owner, Regions
from deviceplugin.machine import SourceError
from deviceplugin.metrics import Metrics
from deviceplugin.offer import Offer
from deviceplugin.podresources import PodResources
from deviceplugin.record import Record
from deviceplugin.sense import Senses
from deviceplugin.usage.processes import Process, Sample
from protos.contract import names
from tests.sim.standin_library import Library
from tests.sim.standin_toolkit import Driver
from tests.unit.deviceplugin.isolation.test_checks import running
from tests.unit.deviceplugin.isolation.test_readback import FIRST, POD, SECOND, Api, Source
from tests.unit.deviceplugin.library.hosts import a_group, install

PID = 4321
STARTED = "2020-01-01T00:00:00Z"
ENV = {"CUDA_DEVICE_MEMORY_LIMIT": "4096m"}


class Processes:
    """The driver's lists of processes, by GPU."""

    def __init__(self) -> None:
        self.on: dict[str, set[int]] = {"GPU-0": set(), "GPU-1": set()}
        self.silent = False

    def read(self) -> tuple[Sample, ...]:
        if self.silent:
            raise SourceError("no answer")
        return tuple(Sample(uuid, tuple(Process(pid, None) for pid in pids)) for uuid, pids in self.on.items())

    def close(self) -> None:
        return


class Node:
    """One node with driver 535 and the library of its operator, and one pod that was given it."""

    def __init__(self, root: Path) -> None:
        self.root, self.api, self.processes = root, Api(), Processes()
        self.library = install(root)
        self.folder, self.groups = root / "regions", root / "groups"
        self.folder.mkdir()
        a_group(self.groups, "0a1b2c3d-1111-2222-3333-444455557777", "99" * 32, 1)  # the node's own pods
        self.regions = Regions(self.folder, 2**40)
        self.start()

    def start(self) -> None:
        """A plugin that starts anew, and knows what the kubelet's checkpoint says."""
        self.record, self.metrics, api = Record(), Metrics(), cast(Any, self.api)
        self.cluster, self.offer = Cluster(api, "n", api), Offer(Sharing())
        probe = LibraryProbe(self.library, self.regions, self.groups, caps_compute=False)
        self.watch = Watch(Mode.LIBRARY, Probe(self.groups, None, "", probe), self.cluster.tell_node)
        self.source = Source(Driver(version="535.1", has_call=False))
        self.kubelet = PodResources(self.root / "none.sock")
        tell = self.cluster.tell_node
        self.senses = Senses(self.source, Health(), self.offer, self.kubelet, self.metrics, tell, self.watch)
        provers: Any = {"library": LibraryProver(self.regions, self.processes)}
        self.checks = ReadBack(self.senses, self.cluster, self.record, self.watch, self.groups, provers)
        env = {names.ENV_MEM_MIB: "4096", names.ENV_UUIDS: "GPU-0", **ENV}
        self.record.load([Entry(POD, "main", names.GPU_MEM, (), env)], self.offer.inventory, Sharing())

    def runs(self, number: str = FIRST, started: str = STARTED) -> Library:
        """The kubelet starts the container; what its library writes."""
        self.regions.make(Owner(POD, "main"))
        a_group(self.groups, POD, number, PID)
        pod = running("p", number)
        (status,) = pod.status.container_statuses
        state = msgspec.structs.replace(status.state, running=type(status.state.running)(started))  # type: ignore[misc]
        told = msgspec.structs.replace(pod.status, container_statuses=(msgspec.structs.replace(status, state=state),))
        meta = msgspec.structs.replace(pod.metadata, uid=POD)
        self.cluster.pods["default", "p"] = msgspec.structs.replace(pod, metadata=meta, status=told)
        return Library(self.regions.path(Owner(POD, "main")), ENV, ("GPU-0",))

    async def look(self, later: float = readback.AGAIN_S) -> str:
        """One look; the state of the container."""
        for check in self.checks._checks.values():
            check.due -= later
        await self.checks.look()
        counts = {state: self.metrics.isolated.labels(state)._value.get() for state in STATES}
        (state,) = [state for state, count in counts.items() if count]
        return state

    async def level(self) -> str:
        await self.senses.read([])
        isolation = self.offer.inventory.isolation
        return isolation.memory if isolation else "none"


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path)
    yield made
    await made.kubelet.close()


def use(library: Library) -> None:
    library.load()
    library.count_gpus()
    library.begin(7, gpu0=2**30)


async def test_it_is_unknown_until_a_program_uses_gpus_and_then_enforced(node: Node) -> None:
    assert await node.level() == "library"
    library = node.runs()
    assert await node.look() == "unknown"
    use(library)
    node.processes.on["GPU-0"].add(PID)
    assert await node.look() == "enforced"
    await node.kubelet.close()
    node.start()
    node.runs()
    assert await node.look() == "enforced", "a plugin that starts anew reads the same region"
    assert node.api.events == []


async def test_a_program_without_the_library_is_told_once_it_is_sure_and_the_node_promises_only(node: Node) -> None:
    assert await node.level() == "library"
    node.runs()
    node.processes.on["GPU-0"].add(PID)
    assert await node.look() == "unknown", "seen once"
    assert await node.look(later=1.0) == "mismatch"
    assert node.api.events == [
        "Pod IsolationMismatch: container main uses GPU 0 without the library: it was given 4096 MiB"
    ]
    isolation = node.offer.inventory.isolation
    assert isolation is not None
    assert isolation.memory == ""
    assert "uses a GPU without the library" in isolation.why
    assert await node.level() == ""
    install(node.root)
    assert await node.level() == "library", "another library"


async def test_a_program_that_ends_leaves_its_gpu_a_moment_later_and_is_no_mismatch(node: Node) -> None:
    await node.level()
    library = node.runs()
    use(library)
    node.processes.on["GPU-0"].add(PID)
    assert await node.look() == "enforced"
    library.end(7)
    assert await node.look() == "enforced", "its slot is free, and the driver still lists it"
    node.processes.on["GPU-0"].clear()
    assert await node.look(later=1.0) == "enforced"
    assert node.api.events == []


async def test_processes_of_others_on_the_gpu_show_nothing_of_this_container(node: Node) -> None:
    await node.level()
    node.runs()
    node.processes.on["GPU-0"].update({1, 9999})
    for _ in range(3):
        assert await node.look() == "unknown"
    assert node.api.events == []


async def test_a_limit_that_the_container_changed_is_told_and_the_node_keeps_its_level(node: Node) -> None:
    await node.level()
    library = node.runs()
    use(library)
    library.put(1600, bytes(8))
    assert await node.look() == "mismatch"
    assert "has a memory limit of 0 MiB on GPU 0: it was given 4096 MiB" in node.api.events[0]
    assert await node.level() == "library"


async def test_after_a_restart_of_the_container_the_old_region_proves_nothing(node: Node) -> None:
    await node.level()
    library = node.runs()
    use(library)
    assert await node.look() == "enforced"
    os.utime(library.path, (1.0, 1_600_000_000.0))
    again = node.runs(SECOND, started="2021-01-01T00:00:00Z")
    assert await node.look() == "unknown"
    use(again)
    assert await node.look() == "enforced"


async def test_a_region_that_vanishes_or_is_of_another_version_proves_nothing_any_more(node: Node) -> None:
    await node.level()
    library = node.runs()
    use(library)
    assert await node.look() == "enforced"
    library.put(8, b"\3")
    assert await node.look() == "unknown"
    library.path.unlink()
    assert await node.look() == "unknown"
    node.processes.on["GPU-0"].add(PID)
    await node.look()
    assert await node.look() == "mismatch"


async def test_while_the_driver_tells_no_processes_nobody_is_accused(node: Node) -> None:
    await node.level()
    node.runs()
    node.processes.silent = True
    for _ in range(3):
        assert await node.look() == "unknown"


async def test_a_library_that_vanishes_takes_the_level_and_leaves_who_runs(node: Node) -> None:
    assert await node.level() == "library"
    library = node.runs()
    use(library)
    assert await node.look() == "enforced"
    node.library.unlink()
    assert await node.level() == ""
    assert await node.look() == "enforced"
    await node.watch.tell()
    assert any("IsolationLacking" in event for event in node.api.events)
