"""MIG instances that are made when their pods start: the real extender, plugin and partitioner, on fake GPUs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
import yaml

from deviceplugin import helper_socket
from deviceplugin.partitioner import fake, protocol
from extender.sim.kubelet import runtime
from extender.sim.kubelet.status import NodeSpec
from extender.sim.spec import PluginPlace, gangshare_plugin
from protos.contract import allocation, mig, names
from protos.contract.bounds import HELPER_LINE
from tests.scenarios import commands, embedded, gangs
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import delete, environment, mem, phase, refused_with, run
from tests.scenarios.world import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")
NODE = "node-cut"
MACHINE = {
    "defaults": {"model": "NVIDIA H100 80GB HBM3", "memMiB": 81039, "cc": "9.0"},
    "gpus": [{"health": "mig", "dynamic": True}],
}
PATIENCE_S = 90.0


class Between:
    """Passes on what a plugin asks its partitioner. It can lose an answer that tells of an instance."""

    def __init__(self, folder: Path) -> None:
        self.path, self._partitioner = folder / "between.sock", Path()
        self.lose: Callable[[], None] | None = None
        """Called instead of such an answer, once."""

    def plugin(self, place: PluginPlace) -> Sequence[str]:
        """The command of a plugin that asks here."""
        assert place.partitioner_socket is not None
        self._partitioner = place.partitioner_socket
        return [str(self.path) if word == str(self._partitioner) else word for word in gangshare_plugin(place)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, helper_socket.HelperError):
            line = await reader.readuntil(helper_socket.END)
            answer = await helper_socket.asked(self._partitioner, line, PATIENCE_S, "mig-dynamic")
            lose = self.lose if protocol.answer(answer).made else None
            if lose is not None:
                self.lose = None
                lose()
            else:
                writer.write(answer)
                await writer.drain()
        writer.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[tuple[EmbeddedWorld, Between]]:
    with tempfile.TemporaryDirectory(prefix="gm-", dir="/tmp") as name:
        between, profile = Between(Path(name)), Path(name) / "gpus.yaml"
        profile.write_text(yaml.safe_dump(MACHINE))
        nodes = [NodeSpec(name=NODE, profile=str(profile))]
        server = await asyncio.start_unix_server(between.serve, between.path, limit=HELPER_LINE.most)
        async with server, embedded.a_cluster(*nodes, plugin_command=between.plugin) as cluster:
            world = EmbeddedWorld(cluster)
            await world.wait(world.knows_all_gpus, 60, "the extender knows the GPU")
            yield world, between


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: tuple[EmbeddedWorld, Between]) -> AsyncIterator[EmbeddedWorld]:
    world, _ = running
    yield world
    await gangs.tidy(world)
    await has(world)


def asking(name: str, profile: str, amount: int = 4) -> Object:
    """A pod that names a profile."""
    return a_pod(name, a_container(limits=mem(amount)), annotations={names.MIG_PROFILE: profile})


def there(world: EmbeddedWorld) -> dict[str, str]:
    """The instances that the driver has: UUID by place."""
    folder = world.cluster.node(NODE).partitioner_dir
    assert folder is not None
    file = folder / fake.NAME
    found = msgspec.json.decode(file.read_bytes()) if file.exists() else {}
    return {place: each["device"] for place, each in found.items()}


async def has(world: EmbeddedWorld, *pods: str) -> None:
    """Wait until the driver has the instances of these pods, and no others."""

    async def so() -> bool:
        return set(there(world)) == {await place(world, name) for name in pods}

    await world.wait(so, PATIENCE_S, f"the driver has the instances of {pods}")


async def place(world: EmbeddedWorld, name: str) -> str:
    """What the pod's annotation names."""
    pod = await world.pod("default", name)
    assert pod
    found = allocation.decode(pod["metadata"]["annotations"].get(names.ALLOCATION))
    assert found
    (uuid,) = found.uuids()
    return uuid


async def profile(world: EmbeddedWorld, name: str) -> str:
    found = mig.place(await place(world, name))
    assert found is not None
    return found.profile


async def runs(world: EmbeddedWorld, name: str) -> None:
    async def so() -> bool:
        return await phase(world, name) == "Running"

    await world.wait(so, PATIENCE_S, f"{name} runs")


async def top(world: EmbeddedWorld, *args: str) -> str:
    return await commands.asked(world.cluster.place.status_url, "top", *args)


async def test_an_instance_is_there_while_its_pod_is_and_who_overlaps_it_waits(world: EmbeddedWorld) -> None:
    assert there(world) == {}
    await run(world, asking("named", "3g.40gb"), a_pod("amount", a_container(limits=mem(15))))
    await has(world, "named", "amount")
    assert [await profile(world, name) for name in ("named", "amount")] == ["3g.40gb", "1g.20gb"]
    for name in ("named", "amount"):
        env = await environment(world, name)
        assert env[names.VISIBLE_DEVICES] == there(world)[await place(world, name)]
    rows = (await top(world, "--pods")).splitlines()
    assert any("can make 1g.10gb ×2" in row for row in rows)
    for name, of in (("named", "3g.40gb"), ("amount", "1g.20gb")):
        (row,) = [nth for nth, row in enumerate(rows) if f"default/{name}" in row]
        assert of in rows[row - 1]
    await world.create_pod(asking("second", "3g.40gb"))
    assert "no node with 1 MIG instance 3g.40gb with 4 GiB free" in await refused_with(world, "second")
    shown = await top(world)
    assert "1 pod pending: 1 NoRoom" in shown
    assert "node-cut 0 of 2 such MIG instances free" in shown
    await delete(world, "amount", grace=1)
    await runs(world, "second")
    await has(world, "named", "second")


async def test_a_pod_that_has_ended_by_itself_has_no_instance_any_more(world: EmbeddedWorld) -> None:
    ending = asking("ending", "7g.80gb")
    ending["metadata"]["annotations"][runtime.RUN_SECONDS] = "1"
    await world.create_pod(ending)
    await run(world, asking("next", "3g.40gb"))
    assert await phase(world, "ending") == "Succeeded"
    await has(world, "next")


async def test_a_plugin_that_is_killed_before_it_hears_of_an_instance_leaves_none_without_an_owner(
    running: tuple[EmbeddedWorld, Between], world: EmbeddedWorld
) -> None:
    plugin = world.cluster.node(NODE).plugin
    assert plugin is not None
    running[1].lose = lambda: plugin.signal(signal.SIGKILL)
    await world.create_pod(asking("unlucky", "2g.20gb"))

    async def failed() -> bool:
        return await phase(world, "unlucky") == "Failed"

    await world.wait(failed, PATIENCE_S, "the kubelet gives up the pod")
    assert list(there(world)) == [await place(world, "unlucky")]
    await plugin.restart()
    await has(world)
    await run(world, asking("lucky", "7g.80gb"))
    await has(world, "lucky")


async def test_a_partitioner_that_is_killed_knows_its_own(world: EmbeddedWorld) -> None:
    await run(world, asking("first", "1g.10gb"))
    before = there(world)
    partitioner = world.cluster.node(NODE).partitioner
    assert partitioner is not None
    await partitioner.restart(kill=True)
    await run(world, asking("second", "1g.10gb"))
    assert before.items() < there(world).items()
    await delete(world, "first", grace=1)
    await has(world, "second")
