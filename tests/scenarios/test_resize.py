"""`gangshare resize` on an embedded cluster: booked, limited, refused; after restarts of extender and plugin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from deviceplugin import fake
from deviceplugin.limits.helper import Helper
from deviceplugin.limits.serve import server
from extender.sim.kubelet.status import NodeSpec
from protos.contract import names
from tests.scenarios import commands, embedded, gangs
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import mem, phase, refused_with, run
from tests.scenarios.typist import Typist
from tests.sim.standin_limits import MIB, Driver, make_pod
from tests.unit.docs.typed import steps

pytestmark = pytest.mark.asyncio(loop_scope="module")
NODE = "node-limits"


class Machine:
    """One node with one GPU of 14 units, whose pods a helper limits."""

    def __init__(self, folder: Path) -> None:
        self.groups, self.socket, self.profile = folder / "g", folder / "l.sock", folder / "profile.yaml"
        self.groups.mkdir()
        (self.groups / "cgroup.controllers").write_text("cpu dmem\n")
        make_pod(self.groups, "1" * 32)
        facts = {"driver": "615.71.05", "toolkit": "1.17.0", "limits": {}}
        self.facts = {"defaults": {"model": "Tesla T4", "memMiB": 14910}, "gpus": [{}], **facts}
        self._write()
        found = fake.machine(fake.parse(self.profile.read_bytes()), NODE)
        self.driver = Driver({gpu.uuid: gpu.mem_mib * MIB for gpu in found.gpus}, self.told)

    def _write(self) -> None:
        fresh = self.profile.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(self.facts, sort_keys=False))
        fresh.replace(self.profile)

    def told(self) -> None:
        """What the driver keeps is what the plugin reads."""
        limits = {at: {uuid: hard // MIB for uuid, hard in by.items()} for at, by in self.driver.limits.items()}
        self.facts = {**self.facts, "limits": limits}
        self._write()

    def mib(self, uid: str) -> int:
        """The limit of a pod, 0 if it has none."""
        return sum(self.driver.limits.get(str(make_pod(self.groups, uid)), {}).values()) // MIB


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("m"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(machine: Machine) -> AsyncIterator[EmbeddedWorld]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GANGSHARE_CGROUP_ROOT", str(machine.groups))
        patch.setenv("GANGSHARE_LIMITS_SOCKET", str(machine.socket))
        patch.setenv("GANGSHARE_ISOLATION", "auto")
        nodes = [NodeSpec(name=NODE, profile=str(machine.profile))]
        async with (
            server(machine.socket, Helper(machine.driver, machine.groups)),
            embedded.a_cluster(*nodes) as cluster,
        ):
            world = EmbeddedWorld(cluster)
            node = cluster.node(NODE)
            node.runtime.pod_hook = lambda pod: (make_pod(machine.groups, pod["metadata"]["uid"]), None)[1]
            machine.profile = node.profile
            await world.wait(world.knows_all_gpus, 60, "the extender knows all GPUs")
            yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running)


async def resize(world: EmbeddedWorld, pod: str, units: int, *more: str) -> commands.Ran:
    where = ("--kubeconfig", str(world.cluster.place.kubeconfig))
    return await asyncio.to_thread(commands.run, "resize", "pod", pod, "--gpu-mem", f"{units}", *where, *more)


async def uid(world: EmbeddedWorld, pod: str) -> str:
    found = await world.pod("default", pod)
    assert found is not None
    return str(found["metadata"]["uid"])


async def until_running(world: EmbeddedWorld, pod: str) -> None:
    async def runs() -> bool:
        return await phase(world, pod) == "Running"

    await world.wait(runs, 60, f"{pod} runs")


async def test_a_running_pod_gets_more_and_others_less(world: EmbeddedWorld, machine: Machine) -> None:
    await run(world, a_pod("p", a_container(limits=mem(4))))
    assert machine.mib(await uid(world, "p")) == 4096
    ran = await resize(world, "p", 10)
    assert (ran.code, ran.out) == (0, "pod default/p: main is limited to 10 units of memory on each of its GPUs\n"), ran
    assert machine.mib(await uid(world, "p")) == 10240
    await world.create_pod(a_pod("late", a_container(limits=mem(5))))
    await refused_with(world, "late")
    await world.restart_extender(kill=True)
    await world.restart_plugin(NODE, kill=True)
    await world.create_pod(a_pod("later", a_container(limits=mem(5))))
    await refused_with(world, "later")
    ran = await resize(world, "p", 2)
    assert "its booking stays at the most that it had" in ran.out, ran
    assert machine.mib(await uid(world, "p")) == 2048
    await world.delete_pod("default", "p", 0)
    await until_running(world, "late")


async def test_what_cannot_be_is_refused_in_a_sentence(world: EmbeddedWorld, machine: Machine) -> None:
    await run(world, a_pod("p", a_container(limits=mem(4))))
    await run(world, a_pod("q", a_container(limits=mem(4))))
    for units in (11, 100):
        ran = await resize(world, "p", units)
        assert ran.code == 1
        assert "GPU 0 has room for 6 more units" in ran.err
    ran = await resize(world, "p", 6, "-c", "other")
    assert "container other requests no GPUs" in ran.err
    ran = await resize(world, "p", 4, "--timeout", "0")
    assert "no answer in 0 s" in ran.err
    ran = await resize(world, "nobody", 6)
    assert ran.code == 1
    assert machine.mib(await uid(world, "p")) == 4096
    machine.driver.fault = "permission"
    ran = await resize(world, "p", 6)
    machine.driver.fault = ""
    assert ran.code == 1
    assert "its limit was not changed: the helper may not set limits" in ran.err


async def test_whole_gpus_are_not_resized(world: EmbeddedWorld) -> None:
    await run(world, a_pod("whole", a_container(limits={names.WHOLE_GPU: 1})))
    ran = await resize(world, "whole", 6)
    assert "only parts are resized" in ran.err


async def test_the_commands_of_the_page(world: EmbeddedWorld, tmp_path: Path) -> None:
    """The node has one GPU, so the pod of the other namespace comes when the first is gone."""
    typist = Typist.at(world.cluster, tmp_path)
    here, there = steps("docs/isolation.md", "Resize a running pod")
    await run(world, a_pod("train-0", a_container(limits=mem(4))))
    await typist.type(here, "main is limited to 12 units")
    await world.delete_pod("default", "train-0", 0)
    await world.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    pod = a_pod("train-0", a_container(limits=mem(4)))
    await world.create_pod({**pod, "metadata": {**pod["metadata"], "namespace": "team-a"}})
    await typist.type("kubectl get pods -n team-a", "Running")
    await typist.type(there, "main is limited to 12 units")
    await world.delete_pod("team-a", "train-0", 0)
