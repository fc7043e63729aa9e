"""Used against promised on an embedded cluster: one pod takes more than it was promised, another does nothing.

The measuring process reads a fake driver. Its process numbers lead to the containers of the cluster: by a fake /proc,
and where this machine lets us, by real processes in real control groups.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from prometheus_client.parser import text_string_to_metric_families

from deviceplugin.cgroups import Group
from deviceplugin.usage.processes import FakeProcesses
from deviceplugin.usage.run import Meter
from deviceplugin.usage.settings import Settings
from extender.sim.kubelet.status import NodeSpec
from extender.sim.process import Process, free_port
from protos.contract import idle, names, objects
from protos.kube import credentials
from protos.kube.client import ApiClient
from tests.scenarios import commands, embedded, gangs
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.preemption_stories import ARGS, CLASSES, gone
from tests.scenarios.stories import T4, event, mem, on, phase, run, shares, until
from tests.scenarios.typist import Typist
from tests.scenarios.world import Object
from tests.unit.deviceplugin.usage import made

pytestmark = pytest.mark.asyncio(loop_scope="module")
GIB = 1024
"""MiB."""
METER = "gangshare-usage-abcde"
IDLE_S = 1
"""Seconds after which pods give way first."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    args = [*ARGS, f"--idle-first={IDLE_S}"]
    async with embedded.a_cluster(NodeSpec(name=T4, profile="t4x4"), extender_args=args) as cluster:
        made_world = EmbeddedWorld(cluster)
        for each in CLASSES:
            await made_world.create(each)
        await made_world.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}})
        yield made_world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running)


class Driver:
    """The fake driver of the node: the processes that a test put on its GPUs, and a fake /proc beside it."""

    def __init__(self, world: EmbeddedWorld, folder: Path) -> None:
        self.world, self.file, self.proc = world, folder / "gpus.yaml", folder / "proc"
        self._profile = yaml.safe_load(world.cluster.node(T4).profile.read_text())
        self.proc.mkdir()
        (self.proc / "cgroup.controllers").write_text("memory\n")
        self._write()

    async def use(self, pod: str, pid: int, mem_mib: int, sm: int) -> Group:
        """A process of the pod on its GPU; returns its container."""
        ((share,),) = (await shares(self.world, pod)).values()
        found = await self.world.pod("default", pod)
        assert found
        (status,) = found["status"]["containerStatuses"]
        group = Group(found["metadata"]["uid"], status["containerID"].removeprefix("containerd://"))
        made.in_proc(self.proc, pid, made.path_of(group))
        processes = self._profile["gpus"][share.index].setdefault("processes", [])
        processes[:] = [each for each in processes if each["pid"] != pid]
        processes.append({"pid": pid, "memMiB": mem_mib, "sm": sm})
        self._write()
        return group

    def _write(self) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(yaml.safe_dump(self._profile))
        new.replace(self.file)


def a_meter_pod(port: int) -> Object:
    """The pod of the measuring process, as the API server's proxy finds it."""
    container = a_container("usage", ports=[{"name": "metrics", "containerPort": port}])
    pod = a_pod(METER, container, labels={"app.kubernetes.io/name": names.USAGE}, nodeName=T4)
    pod["metadata"]["namespace"] = names.NAMESPACE
    return pod


@asynccontextmanager
async def measuring(world: EmbeddedWorld, driver: Driver, **settings: Any) -> AsyncIterator[int]:
    """The measuring process in this one; returns its port."""
    port, stop = free_port(), asyncio.Event()
    access = await credentials.load(str(world.cluster.kubeconfig))
    wanted = Settings(node_name=T4, port=port, period_s=1.0, **settings)
    async with ApiClient(access) as client, asyncio.TaskGroup() as group:
        group.create_task(
            Meter(wanted, FakeProcesses(str(driver.file), T4), client, driver.proc, driver.proc).run(stop)
        )
        await world.create_pod(a_meter_pod(port))
        try:
            yield port
        finally:
            stop.set()
            await world.delete_pod(names.NAMESPACE, METER, 0)


async def page(port: int) -> Object:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/usage") as answer:
        found: Object = await answer.json()
        return found


async def series(port: int) -> dict[tuple[str, str], float]:
    """The values of all series of containers, by metric and pod."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
        return {(s.name, s.labels.get("pod", "")): s.value for family in families for s in family.samples}


async def shown(world: EmbeddedWorld, port: int, holds: Callable[[dict[str, Object]], object], what: str) -> None:
    """Wait until the page's rows, by pod, are so."""

    async def holds_now() -> object:
        try:
            return holds({use.get("pod", "-"): use for use in (await page(port)).get("uses", ())})
        except (aiohttp.ClientError, KeyError):
            return False

    await until(world, holds_now, what)


def asked(world: EmbeddedWorld, *args: str) -> Awaitable[str]:
    kubeconfig = ("--kubeconfig", str(world.cluster.kubeconfig))
    return commands.asked(world.cluster.place.status_url, *args, *kubeconfig)


async def test_who_takes_more_and_who_is_idle_is_shown_and_told(world: EmbeddedWorld, tmp_path: Path) -> None:
    queue = {names.QUEUE: "default"}
    greedy = a_pod("greedy", a_container(limits=mem(4)), labels=queue)
    await run(world, greedy, a_pod("lazy", a_container(limits=mem(6))))
    driver = Driver(world, tmp_path)
    await driver.use("greedy", 101, 5 * GIB, 40)
    await driver.use("lazy", 102, 1 * GIB, 0)
    async with measuring(world, driver, overuse_events=True) as port:
        await shown(world, port, lambda uses: {"greedy", "lazy"} <= set(uses), "both pods are measured")
        await shown(world, port, lambda uses: uses["lazy"].get("idle", 0) > 1, "the lazy one is idle for a second")
        uses = {use["pod"]: use for use in (await page(port))["uses"]}
        assert (uses["greedy"]["used"], uses["greedy"]["promised"]) == (5 * 2**30, 4 * 2**30)
        assert (uses["greedy"]["sm"], uses["greedy"].get("idle")) == (0.4, 0)

        found = await event(world, "greedy", "GpuMemoryOveruse")
        assert "uses 5.0 GiB" in found
        assert "promised 4.0 GiB" in found

        typist = Typist.at(world.cluster, tmp_path)
        (told,) = await typist.follow("docs/measuring.md", "See it", "1 over promise")
        await typist.follow("docs/howtos.md", "Find who holds GPUs and does nothing", "", "default")
        rows = {line.split()[2]: line for line in told.splitlines() if line.startswith(T4)}
        assert "5.0 GiB" in rows["default/greedy"]
        assert "default" in rows["default/greedy"].split()
        assert "memory promised, compute promised" in rows["default/greedy"]
        idle = json.loads(await asked(world, "idle", "--for", "1s", "-o", "json"))
        assert [use["pod"] for use in idle["uses"]] == ["lazy"]
        assert "default/greedy" not in await asked(world, "idle", "--for", "1s")

        await driver.use("greedy", 101, 3 * GIB, 40)
        await shown(world, port, lambda uses: uses["greedy"]["used"] == 3 * 2**30, "it keeps to its promise again")
        assert "0 over promise" in (await asked(world, "top", "--used")).splitlines()[0]

        values = await series(port)
        assert values["gangshare_container_gpu_memory_promised_bytes", "lazy"] == 6 * 2**30
        assert values["gangshare_container_gpu_enforced", "lazy"] == 0
        await world.delete_pod("default", "lazy", 0)
        await shown(world, port, lambda uses: "lazy" not in uses, "its rows end with the pod")
        assert not [key for key in await series(port) if key[1] == "lazy"]


async def test_who_uses_no_gpu_gives_way_before_younger_pods_that_work(world: EmbeddedWorld, tmp_path: Path) -> None:
    """Without the mark a younger one would go, since it has worked for less long."""
    whole = {names.WHOLE_GPU: 1}
    names_ = ["sleeps", "works-1", "works-2", "works-3"]
    for name in names_:
        await run(world, a_pod(name, a_container(limits=whole), priorityClassName="batch", **on(T4)))
    driver = Driver(world, tmp_path)
    for number, name in enumerate(names_):
        await driver.use(name, 200 + number, GIB, 0 if name == "sleeps" else 40)
    async with measuring(world, driver, mark_idle_s=float(IDLE_S)):
        await until(world, lambda: marked(world, "sleeps"), "it is marked")
        assert not any([await marked(world, name) for name in names_[1:]])
        await driver.use("sleeps", 200, GIB, 40)
        await until(world, lambda: not_marked(world, "sleeps"), "it works again")
        await driver.use("sleeps", 200, GIB, 0)
        await until(world, lambda: marked(world, "sleeps"), "it is marked again")
        assert [await phase(world, name) for name in names_] == 4 * ["Running"], "nobody goes for idleness alone"
        await asyncio.sleep(IDLE_S)  # the mark has whole seconds, rounded up
        await world.create_pod(a_pod("urgent", a_container(limits=whole), priorityClassName="urgent", **on(T4)))
        assert "default/urgent of priority 1000" in await event(world, "sleeps", "Preempted")
        await gone(world, "sleeps")
        await until(world, lambda: is_running(world, "urgent"), "urgent runs")
        assert [await phase(world, name) for name in names_[1:]] == 3 * ["Running"]


async def marked(world: EmbeddedWorld, name: str) -> bool:
    """Whether the measuring process says that the pod is idle."""
    pod = await world.pod("default", name)
    return bool(pod) and idle.of(objects.decode_pod(json.dumps(pod).encode())) is not None


async def not_marked(world: EmbeddedWorld, name: str) -> bool:
    return not await marked(world, name)


async def is_running(world: EmbeddedWorld, name: str) -> bool:
    return await phase(world, name) == "Running"


async def test_a_forged_allocation_promises_nothing_until_the_true_one_is_back(
    world: EmbeddedWorld, tmp_path: Path
) -> None:
    await run(world, a_pod("forger", a_container(limits=mem(4))))
    driver = Driver(world, tmp_path)
    await driver.use("forger", 103, 2 * GIB, 10)
    async with measuring(world, driver) as port:
        await shown(world, port, lambda uses: uses["forger"]["promised"] == 4 * 2**30, "the promise is shown")
        plugin = world.cluster.node(T4).plugin
        assert plugin
        await world.stop_extender()
        await plugin.stop()
        pod = await world.pod("default", "forger")
        assert pod
        larger = pod["metadata"]["annotations"][names.ALLOCATION].replace('"mem":4', '"mem":14')
        await world.patch("v1", "Pod", "forger", {"metadata": {"annotations": {names.ALLOCATION: larger}}})
        await shown(
            world, port, lambda uses: "promised" not in uses["forger"], "what somebody else wrote is no promise"
        )
        await plugin.start()
        await world.restart_extender()
        await shown(world, port, lambda uses: uses["forger"]["promised"] == 4 * 2**30, "the true one is back")


async def test_without_the_component_the_commands_say_so(world: EmbeddedWorld) -> None:
    kubeconfig = ("--kubeconfig", str(world.cluster.kubeconfig), "--server", world.cluster.place.status_url)
    ran = await asyncio.to_thread(commands.run, "top", "--used", *kubeconfig)
    assert ran.code == 2
    assert "is not measured" in ran.err


@pytest.mark.skipif(made.unified() is None, reason="needs a writable hierarchy of cgroup v2")
async def test_a_real_process_in_the_group_of_its_container_is_measured(world: EmbeddedWorld, tmp_path: Path) -> None:
    """The process as it is installed, with its own reading of /proc."""
    root = made.unified()
    assert root is not None
    await run(world, a_pod("real", a_container(limits=mem(4))))
    driver, port = Driver(world, tmp_path), free_port()
    command = [sys.executable, "-m", "deviceplugin.usage", "--fake", str(driver.file), "--node-name", T4, "--period=1"]
    connect = ["--port", str(port), "--kubeconfig", str(world.cluster.kubeconfig)]
    process = Process("usage", [*command, *connect], tmp_path)
    with made.sleeping() as child, made.sleeping() as stranger:
        group = await driver.use("real", child.pid, 2 * GIB, 10)
        await driver.use("real", stranger.pid, 1 * GIB, 10)  # in no group of a pod
        with made.in_group(root, group, child.pid):
            await process.start()
            try:
                await shown(world, port, lambda uses: uses["real"].get("used") == 2 * 2**30, "its process is found")
                await shown(world, port, lambda uses: uses["-"].get("used") == 2**30, "so is that of the node")
                child.kill()
                child.wait()
                await shown(world, port, lambda uses: uses["real"].get("used") == 0, "it has ended")
            finally:
                await process.stop()
    process.check()
