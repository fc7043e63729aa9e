"""MIG instances that are made when pods start: the real plugin, a partitioner with a stand-in of the driver."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from deviceplugin.helper_socket import Server
from deviceplugin.partitioner import serve
from deviceplugin.partitioner.journal import Journal
from deviceplugin.partitioner.partitioner import Partitioner
from deviceplugin.podresources import PodResources
from protos.contract import allocation, mig, names
from tests.contract.deviceplugin.world import Node, Object, a_node
from tests.unit.deviceplugin.partitioner.machine import Machine

CUT = "GPU-cut"
PROFILE = """
defaults: {model: NVIDIA H100 80GB HBM3, memMiB: 81039}
gpus:
  - {uuid: GPU-whole}
  - {uuid: GPU-cut, health: mig}
"""
SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


class Cut:
    """A node with a GPU that is given over, and its driver."""

    def __init__(self, node: Node, driver: Machine, server: Server, folder: Path) -> None:
        self.node, self.driver, self.server, self.folder = node, driver, server, folder

    @property
    def there(self) -> list[str]:
        """The instances that exist, as people see them: profile and first slice."""
        places = (mig.place(name) for name in self.driver.there())
        return sorted(f"{place.profile}@{place.start}" for place in places if place is not None)

    def places(self, name: str) -> list[str]:
        """Those that the pod's annotation names."""
        found = allocation.decode(self.node.pod(name)["metadata"].get("annotations", {}).get(names.ALLOCATION))
        every = (mig.place(uuid) for uuid in sorted(found.uuids())) if found else ()
        return [f"{place.profile}@{place.start}" for place in every if place is not None]


@contextlib.asynccontextmanager
async def a_cut_node(*options: str) -> AsyncIterator[Cut]:
    with tempfile.TemporaryDirectory(prefix="gm-", dir="/tmp") as name:
        folder, driver = Path(name), Machine(CUT)
        (folder / "profile.yaml").write_text(PROFILE)
        socket = folder / "s" / "p.sock"
        server = serve.server(socket, Partitioner(driver, Journal(folder)))
        settings = ("--mig-strategy", "mixed", "--partitioner-socket", str(socket), *options)
        async with server, a_node(*settings, profile=str(folder / "profile.yaml"), ready=False) as node:
            await node.until(lambda: (node.sim.kubelet_dir / names.KUBELET_SOCKET).exists(), "the kubelet serves")
            await node.plugin.start()
            await node.offered(SMALL, LARGE, names.GPU_MEM)
            await node.until(lambda: node.inventory and node.inventory.layouts, "it is told what can be made")
            yield Cut(node, driver, server, folder)


def asking(resource: str) -> Object:
    return {"name": "main", "image": "busybox", "resources": {"limits": {resource: "1"}}}


async def test_an_instance_is_made_when_its_pod_starts_and_destroyed_when_the_pod_is_gone() -> None:
    async with a_cut_node() as cut:
        node = cut.node
        assert node.inventory is not None
        assert [layout.gpus for layout in node.inventory.layouts] == [(1,)]
        assert cut.there == []
        node.bind("small", asking(SMALL))
        node.bind("large", asking(LARGE))
        await node.runs("small", "large")
        assert cut.there == sorted([*cut.places("small"), *cut.places("large")])
        devices = {each.device.uuid for each in cut.driver.instances[CUT] if each.device is not None}
        assert {node.env(name)[names.VISIBLE_DEVICES] for name in ("small", "large")} == devices
        assert node.env("small")[names.ENV_MEM_MIB] == "9728"
        assert all(gpu.profile == "" for gpu in node.inventory.gpus), "ours are no instances of the operator"
        node.delete("small")
        await node.until(lambda: cut.there == cut.places("large"), "its instance is destroyed")
        assert node.phase("large") == "Running"


async def test_a_pod_that_asks_for_an_amount_gets_an_instance_if_the_gpus_are_taken() -> None:
    async with a_cut_node() as cut:
        node = cut.node
        node.bind("whole", asking(names.WHOLE_GPU))
        await node.runs("whole")
        node.bind("amount", asking(names.GPU_MEM) | {"resources": {"limits": {names.GPU_MEM: "15"}}})
        await node.runs("amount")
        assert [text.partition("@")[0] for text in cut.there] == ["2g.20gb"]


async def test_a_plugin_that_is_killed_finds_what_its_pods_have() -> None:
    async with a_cut_node() as cut:
        node = cut.node
        node.bind("first", asking(LARGE))
        await node.runs("first")
        had, made = cut.there, list(cut.driver.made)
        await node.plugin.restart(kill=True)
        await node.offered(SMALL)
        node.bind("second", asking(SMALL))
        await node.runs("second")
        assert set(had) < set(cut.there)
        assert cut.driver.made[: len(made)] == made
        assert cut.driver.destroyed == []
        node.delete("first")
        await node.until(lambda: cut.there == cut.places("second"), "the instance of the first is destroyed")


async def test_what_the_driver_refuses_fails_the_pod_with_a_reason_and_is_not_offered_for_a_while() -> None:
    async with a_cut_node() as cut:
        node = cut.node
        cut.driver.refuses = "make"
        node.bind("refused", asking(LARGE))
        await node.fails("refused")
        assert "the MIG instance cannot be made" in node.message("refused")
        assert "MigNotMade" in node.events("refused")

        def starts() -> list[int]:
            found = node.inventory
            kinds = (kind for layout in (found.layouts if found else ()) for kind in layout.profiles)
            return [start for kind in kinds if kind.profile == "3g.40gb" for start in kind.starts]

        await node.until(lambda: len(starts()) == 1, "its place is withdrawn")
        cut.driver.refuses = ""
        node.bind("again", asking(LARGE))
        await node.runs("again")
        assert cut.places("again") == [f"3g.40gb@{starts()[0]}"]


async def test_without_its_partitioner_a_node_makes_nothing_and_says_so() -> None:
    async with a_cut_node() as cut:
        node = cut.node
        node.bind("running", asking(SMALL))
        await node.runs("running")
        await cut.server.__aexit__()
        await node.until(lambda: any("no MIG instance can be made" in text for text in node.node_events()), "told")
        node.bind("late", asking(SMALL))
        await node.fails("late")
        assert "components/mig-dynamic" in node.message("late")
        assert node.phase("running") == "Running"
        assert len(cut.there) == 1


async def test_dcgm_exporter_gets_the_true_names() -> None:
    with tempfile.TemporaryDirectory(prefix="gd-", dir="/tmp") as name:
        socket = Path(name) / "t.sock"
        async with a_cut_node("--serve-pod-resources", str(socket)) as cut:
            cut.node.bind("p", asking(SMALL))
            await cut.node.runs("p")
            listed = PodResources(socket)
            try:
                (pod,) = [each for each in await listed.pods() if each.name == "p"]
            finally:
                await listed.close()
            ids = [i for each in pod.containers[0].devices for i in each.device_ids]
            assert ids == [cut.node.env("p")[names.VISIBLE_DEVICES]]
