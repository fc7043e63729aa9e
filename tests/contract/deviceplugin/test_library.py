"""Limits by a library of the operator's, from Allocate to the check: the plugin process, the embedded kubelet."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from deviceplugin.library import contract
from extender.sim.kubelet.kubelet import Settings
from extender.sim.kubelet.runtime import Container
from extender.sim.process import free_port
from protos.contract import names
from tests.contract.deviceplugin.world import Node, a_container, a_node
from tests.sim.standin_library import Library
from tests.sim.standin_toolkit import group_of
from tests.unit.deviceplugin.library.hosts import a_group, install

T4 = 14910
PIDS = range(4000, 5000)


class Host:
    """The node's control groups, the operator's library, and containers whose programs use GPUs at once."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node, self.folder, self.loads = node, folder, True
        """`loads`: programs of the images load the library."""
        self.pids = iter(PIDS)
        node.sim.runtime.hook = self.start

    def start(self, pod: dict[str, Any], container: Container) -> None:
        """A container starts, and its program begins to use its GPUs, if it was given the library or not."""
        uid, pid = pod["metadata"]["uid"], next(self.pids)
        a_group(self.folder / "groups", uid, container.id, pid)
        gpus = container.env.get(names.VISIBLE_DEVICES, "").split(",")
        if self.loads and contract.REGION in container.env:
            library = Library(self.region(uid, container.name), container.env, gpus)
            library.load()
            library.count_gpus()
            library.begin(1, gpu0=2**30)
        profile = yaml.safe_load(self.node.sim.profile.read_text())
        for uuid, gpu in zip(self.node.uuids, profile["gpus"], strict=True):
            if uuid in gpus:
                gpu["processes"] = [*gpu.get("processes", []), {"pid": pid, "memMiB": 1024}]
        fresh = self.node.sim.profile.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(profile, sort_keys=False))
        fresh.replace(self.node.sim.profile)

    def region(self, uid: str, container: str = "main") -> Path:
        return self.folder / "regions" / "regions" / f"{uid}_{container}.cache"

    def ends(self, name: str) -> str:
        """The pod is deleted, and its containers end with their control groups."""
        (status,) = self.node.pod(name)["status"]["containerStatuses"]
        uid: str = self.node.pod(name)["metadata"]["uid"]
        group = group_of(self.folder / "groups", uid, status["containerID"].rpartition("//")[2])
        self.node.delete(name)
        (group / "cgroup.procs").unlink()
        group.rmdir()
        return uid

    @property
    def regions(self) -> list[str]:
        return sorted(path.name for path in self.region("any").parent.iterdir())

    @property
    def level(self) -> str:
        found = self.node.inventory
        return found.isolation.memory if found and found.isolation else "none"

    async def reaches(self, level: str) -> None:
        await self.node.until(lambda: self.level == level, f"the inventory says {level!r}")


@contextlib.asynccontextmanager
async def a_host(folder: Path, *options: str) -> AsyncIterator[Host]:
    library, groups = install(folder), folder / "groups"
    (folder / "regions").mkdir()
    a_group(groups, "0a1b2c3d-1111-2222-3333-444455557777", "99" * 32, 1)  # a pod of the node's own
    where = ("--library-path", str(library), "--library-dir", str(folder / "regions"), "--cgroup-root", str(groups))
    settings = ("--isolation", "library", *where, "--library-dir-mib", str(2**40))
    profile = folder / "driver.yaml"
    facts = {"defaults": {"model": "Tesla T4", "memMiB": T4}, "gpus": [{}, {}], "driver": "535.183.01"}
    profile.write_text(yaml.safe_dump(facts))
    async with a_node(*settings, *options, profile=str(profile), kubelet=Settings(status_seconds=0.1)) as node:
        yield Host(node, folder)


DEMANDS = {names.ISOLATION: "memory"}


async def test_parts_get_the_library_and_whole_gpus_nothing(tmp_path: Path) -> None:
    async with a_host(tmp_path, "--library-compute") as host:
        node = host.node
        await host.reaches("library")
        node.bind("part", a_container(mem=4, slices=25), on={"main": (0,)}, annotations=DEMANDS)
        await node.runs("part")
        env = node.env("part")
        assert (env[contract.MEMORY], env[f"{contract.MEMORY}_0"]) == ("4096m", "4096m")
        assert (env[contract.THREADS], env[contract.POLICY]) == ("25", "force")
        assert env[contract.REGION] == "/usr/local/vgpu/region.cache"
        assert names.MEMORY_LIMIT not in env
        assert host.regions == [host.region(node.pod("part")["metadata"]["uid"]).name]
        node.bind("whole", a_container(whole=1), on={"main": (1,)}, annotations=DEMANDS)
        await node.runs("whole")
        assert not any(key.startswith("CUDA_DEVICE_") for key in node.env("whole"))
        assert len(host.regions) == 1


async def test_what_was_given_is_read_back_also_by_a_plugin_that_starts_anew(tmp_path: Path) -> None:
    port = free_port()

    def enforced() -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page,
        ):
            return b'gangshare_plugin_isolated_containers{state="enforced"} 1.0' in page.read()
        return False

    async with a_host(tmp_path, "--metrics-port", str(port)) as host:
        node = host.node
        await host.reaches("library")
        node.bind("p", a_container(mem=4), on={"main": (0,)}, annotations=DEMANDS)
        await node.runs("p")
        await node.until(enforced, "it is read back")
        await node.plugin.stop(kill=True)
        await node.plugin.start()
        await node.until(enforced, "a new plugin knows of it")
        assert host.level == "library"
        assert node.events("p") == []


async def test_a_program_without_the_library_is_found_out_and_by_setting_evicted(tmp_path: Path) -> None:
    async with a_host(tmp_path, "--on-isolation-mismatch", "evict") as host:
        node, host.loads = host.node, False
        await host.reaches("library")
        node.bind("p", a_container(mem=4), on={"main": (0,)})
        await node.runs("p")
        await node.until(lambda: "IsolationMismatch" in node.events("p"), "an Event of the pod says so")
        await host.reaches("")
        await node.until(lambda: any("promised" in text for text in node.node_events()), "an Event of the node says so")
        await node.until(lambda: node.kubectl.pod("default", "p") is None, "the pod is gone")
        node.bind("later", a_container(mem=4), on={"main": (0,)}, annotations=DEMANDS)
        await node.fails("later")
        assert "uses a GPU without the library" in node.message("later")


async def test_a_library_that_vanishes_takes_the_level_with_it(tmp_path: Path) -> None:
    async with a_host(tmp_path) as host:
        node = host.node
        await host.reaches("library")
        node.bind("p", a_container(mem=4), on={"main": (0,)})
        await node.runs("p")
        (tmp_path / "libvgpu.so").unlink()
        await host.reaches("")
        node.bind("late", a_container(mem=4), on={"main": (0,)}, annotations=DEMANDS)
        await node.fails("late")
        assert "libvgpu.so cannot be opened" in node.message("late")
        assert node.phase("p") == "Running", "what runs goes on"
        install(tmp_path)
        await host.reaches("library")


async def test_regions_outlive_the_plugin_and_go_with_their_pods(tmp_path: Path) -> None:
    async with a_host(tmp_path) as host:
        node = host.node
        await host.reaches("library")
        for name in ("stays", "goes"):
            node.bind(name, a_container(mem=4), on={"main": (0,)})
        await node.runs("stays", "goes")
        stays = host.region(node.pod("stays")["metadata"]["uid"])
        await node.plugin.stop(kill=True)
        gone = host.region(host.ends("goes"))
        assert gone.exists()
        written = stays.stat().st_mtime_ns
        await node.plugin.start()
        await node.until(lambda: not gone.exists(), "what a dead pod left is removed")
        assert stays.stat().st_mtime_ns == written


async def test_after_a_reboot_that_emptied_the_folder_containers_run_limited_again(tmp_path: Path) -> None:
    async with a_host(tmp_path) as host:
        node = host.node
        await host.reaches("library")
        node.bind("p", a_container(mem=4), on={"main": (0,)})
        await node.runs("p")
        region = host.region(node.pod("p")["metadata"]["uid"])
        await node.plugin.stop(kill=True)
        region.unlink()
        region.mkdir()  # as a runtime does for a file that it should mount
        await node.plugin.start()
        await node.until(region.is_file, "the region is made again")
        node.sim.runtime.reboot()
        await node.until(lambda: node.pod("p")["status"]["containerStatuses"][0]["restartCount"] > 0, "it starts again")
        await node.until(lambda: Library(region, {}, ()).number(0) == 19920718, "its program loads the library")
        assert node.env("p")[contract.MEMORY] == "4096m"
