"""Memory limits of pods, set by the helper before the kubelet starts a container: old toolkit, real plugin process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from deviceplugin.helper_socket import Server
from deviceplugin.limits import helper as helpers
from deviceplugin.limits.helper import Helper
from deviceplugin.limits.serve import server
from extender.sim.kubelet.runtime import Container
from protos.contract import names
from tests.contract.deviceplugin.test_isolation import MIB, T4, Host, a_host
from tests.contract.deviceplugin.world import a_container
from tests.sim.standin_limits import Driver, make_pod


class Helped:
    """A node whose toolkit has no hook, and a helper that can be stopped."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host, self.node, self._socket = host, host.node, folder / "l.sock"
        self.limiting = Driver(dict.fromkeys(host.node.uuids, T4 * MIB), self._told)
        self._server: Server | None = None
        host.node.sim.runtime.pod_hook = lambda pod: void(make_pod(host.root, pod["metadata"]["uid"]))
        host.node.sim.runtime.hook = self._started
        make_pod(host.root, "1" * 32)

    def _told(self) -> None:
        """What the driver keeps is what the plugin reads."""
        told = {at: {uuid: hard // MIB for uuid, hard in by.items()} for at, by in self.limiting.limits.items()}
        self.host.edit(limits=told)

    def _started(self, pod: dict[str, Any], container: Container) -> None:
        (self.pod(pod["metadata"]["name"]) / f"cri-containerd-{container.id}.scope").mkdir()

    def pod(self, name: str) -> Path:
        """The pod's control group."""
        return make_pod(self.host.root, self.node.pod(name)["metadata"]["uid"])

    def limits(self, name: str) -> list[int]:
        """The pod's limits on the GPUs of the node, in MiB; 0 is none."""
        found = self.limiting.limits.get(str(self.pod(name)), {})
        return [found.get(uuid, 0) // MIB for uuid in self.node.uuids]

    async def listen(self) -> None:
        self._server = server(self._socket, Helper(self.limiting, self.host.root))
        await self._server.__aenter__()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.__aexit__()
        self._server = None


def void(_: object) -> None:
    return


@contextlib.asynccontextmanager
async def helped(folder: Path, *options: str, toolkit: str = "1.17.0") -> AsyncIterator[Helped]:
    """Plain folders stand in for control groups: the kernel's own take no file of a controller that it lacks."""
    (folder / "groups").mkdir()
    (folder / "groups/cgroup.controllers").write_text("cpu memory dmem\n")
    socket = ("--limits-socket", str(folder / "l.sock"), "--cgroup-root", str(folder / "groups"))
    async with a_host(folder, *socket, *options, toolkit=toolkit) as host:
        host.root = folder / "groups"
        made = Helped(host, folder)
        await made.listen()
        try:
            yield made
        finally:
            await made.stop()


async def test_a_pod_is_limited_before_its_containers_start(tmp_path: Path) -> None:
    async with helped(tmp_path) as one:
        await one.host.reaches("driver")
        node = one.node
        node.bind(
            "p",
            a_container("a", mem=4),
            a_container("b", mem=2),
            init=[a_container("first", mem=5)],
            on={"first": (1,), "a": (1,), "b": (1,)},
            annotations={names.ISOLATION: "memory"},
        )
        await node.runs("p")
        assert one.limits("p") == [0, 6 * 1024]
        node.bind("whole", a_container(whole=1), on={"main": (0,)})
        await node.runs("whole")
        assert one.limits("whole") == [0, 0]
        assert node.events("p") == []


async def test_without_the_helper_no_container_starts_and_with_it_again(tmp_path: Path) -> None:
    async with helped(tmp_path) as one:
        await one.host.reaches("driver")
        node = one.node
        node.bind("p", a_container(mem=4), on={"main": (0,)})
        await node.runs("p")
        await one.stop()
        node.bind("late", a_container(mem=4), on={"main": (0,)})
        await node.until(lambda: "LimitNotSet" in node.events("late"), "an Event says why")
        assert node.phase("late") == "Pending"
        assert node.phase("p") == "Running", "what runs goes on"
        await one.host.reaches("")
        assert one.node.inventory is not None
        assert one.node.inventory.enforced.why.endswith("is components/isolation-limits there?")
        node.bind("demands", a_container(mem=4), on={"main": (0,)}, annotations={names.ISOLATION: "memory"})
        await node.fails("demands")
        await one.listen()
        await node.runs("late")
        assert one.limits("late") == [4096, 0]
        await one.host.reaches("driver")


async def test_a_restarted_container_is_asked_for_again_also_by_a_new_plugin(tmp_path: Path) -> None:
    async with helped(tmp_path) as one:
        await one.host.reaches("driver")
        node = one.node
        node.bind("p", a_container(mem=4), on={"main": (0,)})
        await node.runs("p")
        await node.plugin.stop(kill=True)
        await node.plugin.start()
        await one.host.reaches("driver")
        await node.offered(names.GPU_MEM)
        one.limiting.limits.clear()
        node.sim.runtime.reboot()
        await node.until(lambda: one.limits("p") == [4096, 0], "the pod has its limit again")


async def test_what_runs_without_its_limit_is_limited_once_it_is_found_out(tmp_path: Path) -> None:
    async with helped(tmp_path) as one:
        await one.host.reaches("driver")
        node = one.node
        node.bind("p", a_container(mem=4), on={"main": (0,)})
        await node.runs("p")
        await node.plugin.stop(kill=True)
        one.limiting.limits.clear()
        one._told()
        await node.plugin.start()
        await node.until(lambda: one.limits("p") == [4096, 0], "the pod has its limit again")
        await node.until(lambda: "IsolationMismatch" in node.events("p"), "an Event says so")


async def test_where_limits_of_pods_do_not_hold_for_containers_the_node_promises_only(tmp_path: Path) -> None:
    async with helped(tmp_path) as one:
        await one.stop()
        for shown in one.host.root.rglob("dmem.max"):
            shown.unlink()
        await one.listen()
        await one.node.until(
            lambda: (found := one.node.inventory) and helpers.UNNESTED in found.enforced.why, "the node says why"
        )
        assert one.host.level == ""
