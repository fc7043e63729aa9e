"""Memory limits from Allocate to the check: the plugin process, the embedded kubelet, the toolkit's hook."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from extender.sim.kubelet.kubelet import Settings
from extender.sim.kubelet.runtime import Container
from extender.sim.process import free_port
from protos.contract import allocation, names
from tests.contract.deviceplugin.world import Node, a_container, a_node
from tests.sim.standin_toolkit import Driver, apply_limits, group_of
from tests.unit.deviceplugin.isolation.hosts import groups

MIB = 2**20
T4 = 14910


class Host:
    """The node's control groups, driver and toolkit. The fake machine's profile is what NVML would tell."""

    def __init__(self, node: Node, root: Path) -> None:
        self.node, self.root, self.hooked = node, root, True
        self.driver = Driver(memory=dict.fromkeys(node.uuids, T4 * MIB))
        node.sim.runtime.hook = self.start
        self.edit(limits={})

    def edit(self, **facts: Any) -> None:
        """Change what the machine tells."""
        profile = {**yaml.safe_load(self.node.sim.profile.read_text()), **facts}
        fresh = self.node.sim.profile.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(profile, sort_keys=False))
        fresh.replace(self.node.sim.profile)

    def start(self, pod: dict[str, Any], container: Container) -> None:
        """The runtime makes the container's group, and runs the hook if it knows it."""
        group = group_of(self.root, pod["metadata"]["uid"], container.id)
        group.mkdir(parents=True)
        if self.hooked:
            apply_limits(container.env, group, self.root, self.driver)
            told = {at: {uuid: hard // MIB for uuid, hard in by.items()} for at, by in self.driver.limits.items()}
            self.edit(limits=told)

    @property
    def level(self) -> str:
        found = self.node.inventory
        return found.isolation.memory if found and found.isolation else "none"

    async def reaches(self, level: str) -> None:
        await self.node.until(lambda: self.level == level, f"the inventory says {level!r}")


@contextlib.asynccontextmanager
async def a_host(
    folder: Path, *options: str, isolation: str = "auto", driver: str = "615.41", toolkit: str = "1.20.1"
) -> AsyncIterator[Host]:
    with groups(folder) as root:
        (root / "kubepods.slice").mkdir()
        settings = ("--isolation", isolation, "--cgroup-root", str(root), "--toolkit-version", toolkit)
        profile = folder / "driver.yaml"
        gpus: list[dict[str, Any]] = [{}, {}]
        facts = {"defaults": {"model": "Tesla T4", "memMiB": T4}, "gpus": gpus, "driver": driver}
        profile.write_text(yaml.safe_dump(facts))
        kubelet = Settings(status_seconds=0.1)
        async with a_node(*settings, *options, profile=str(profile), kubelet=kubelet) as node:
            yield Host(node, root)


def limits(node: Node, pod: str, container: str = "main") -> tuple[str | None, str | None]:
    env = node.env(pod, container)
    return env.get(names.MEMORY_REQUEST), env.get(names.MEMORY_LIMIT)


def demanding(node: Node, demanded: str, *gpus: int) -> dict[str, str]:
    """The annotation of an extender that knows what the pod demands."""
    found = allocation.decode(node.placed({"main": gpus}))
    assert found is not None
    return {names.ALLOCATION: allocation.encode(msgspec.structs.replace(found, isolation=demanded))}


async def test_parts_get_both_variables_and_whole_gpus_none(tmp_path: Path) -> None:
    async with a_host(tmp_path) as host:
        node = host.node
        await host.reaches("driver")
        node.bind("part", a_container("a", mem=4), a_container("b", slices=50), on={"a": (0,), "b": (0,)})
        node.bind("pair", a_container(mem=4), on={"main": (0, 1)}, annotations={names.GPU_COUNT: "2"})
        await node.runs("part", "pair")
        assert limits(node, "part", "a") == ("4096", "4096")
        assert limits(node, "part", "b") == ("7168", "7168")
        assert limits(node, "pair") == ("2048", "2048")
        for pod in ("part", "pair"):
            node.delete(pod)
            await node.until(lambda pod=pod: node.kubectl.pod("default", pod) is None, "the pod is gone")  # type: ignore[misc]
        node.bind("whole", a_container(whole=1), on={"main": (1,)}, annotations={names.ISOLATION: "memory"})
        await node.runs("whole")
        assert limits(node, "whole") == (None, None)


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({"isolation": "off"}, "none"),
        ({"driver": "595.91.07"}, ""),
        ({"toolkit": "1.19.1"}, ""),
    ],
    ids=str,
)
async def test_where_nothing_is_proved_nothing_is_set_and_who_demands_it_fails(
    tmp_path: Path, options: dict[str, str], level: str
) -> None:
    async with a_host(tmp_path, **options) as host:
        node = host.node
        assert host.level == level
        node.bind("part", a_container(mem=4), on={"main": (0,)})
        await node.runs("part")
        assert limits(node, "part") == (None, None)
        node.bind("own", a_container(mem=4), on={"main": (0,)}, annotations={names.ISOLATION: "memory"})
        node.bind("adopted", a_container(mem=4), annotations={names.ISOLATION: "memory"})
        node.bind("default", a_container(mem=4), annotations=demanding(node, "memory", 0))
        for pod in ("own", "adopted", "default"):
            await node.fails(pod)
            assert "the pod demands isolation of memory, and this node gives memory promised" in node.message(pod)
        await node.until(lambda: "NoIsolation" in node.events("own"), "an Event says so")


async def test_an_operator_who_wants_it_is_told_what_is_missing(tmp_path: Path) -> None:
    async with a_host(tmp_path, isolation="driver", driver="595.91.07") as host:
        told = "driver 595.91.07 is older than 615"
        await host.node.until(lambda: any(told in text for text in host.node.node_events()), "an Event says so")
        found = host.node.inventory
        assert found is not None
        assert found.isolation is not None
        assert found.isolation.why == told


async def test_the_limit_is_read_back_and_a_new_plugin_reads_it_back_again(tmp_path: Path) -> None:
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
        await host.reaches("driver")
        node.bind("p", a_container(mem=4), on={"main": (0,)}, annotations={names.ISOLATION: "memory"})
        await node.runs("p")
        await node.until(enforced, "it is read back")
        await node.plugin.stop(kill=True)
        await node.plugin.start()
        await node.until(enforced, "a new plugin knows of it")
        assert host.level == "driver"
        assert node.events("p") == []


async def test_a_runtime_without_the_hook_is_found_out(tmp_path: Path) -> None:
    async with a_host(tmp_path) as host:
        node, host.hooked = host.node, False
        await host.reaches("driver")
        node.bind("p", a_container(mem=4), on={"main": (0,)})
        await node.runs("p")
        await node.until(lambda: "IsolationMismatch" in node.events("p"), "an Event of the pod says so")
        await host.reaches("")
        await node.until(lambda: any("promised" in text for text in node.node_events()), "an Event of the node says so")
        node.bind("later", a_container(mem=4), on={"main": (0,)}, annotations={names.ISOLATION: "memory"})
        await node.fails("later")
        assert "the runtime does not run the toolkit's hook" in node.message("later")
        assert node.phase("p") == "Running"
        await node.plugin.stop(kill=True)
        await node.plugin.start()
        await host.reaches("driver")
        await host.reaches("")


async def test_by_setting_who_runs_without_the_limit_is_evicted(tmp_path: Path) -> None:
    async with a_host(tmp_path, "--on-isolation-mismatch", "evict") as host:
        node, host.hooked = host.node, False
        await host.reaches("driver")
        node.bind("p", a_container(mem=4), on={"main": (0,)})
        await node.runs("p")
        await node.until(lambda: node.kubectl.pod("default", "p") is None, "the pod is gone")
        await node.until(lambda: node.events("p") == ["IsolationMismatch", "IsolationEvicted"], "Events say so")


async def test_a_driver_that_is_replaced_changes_what_the_node_says(tmp_path: Path) -> None:
    async with a_host(tmp_path, driver="595.91.07") as host:
        node = host.node
        assert host.level == ""
        host.edit(driver="615.41")
        await host.reaches("driver")
        node.bind("p", a_container(mem=4), on={"main": (0,)}, annotations={names.ISOLATION: "memory"})
        await node.runs("p")
        assert limits(node, "p") == ("4096", "4096")
        host.edit(driver="595.91.07")
        await host.reaches("")
        node.bind("late", a_container(mem=4), on={"main": (0,)}, annotations={names.ISOLATION: "memory"})
        await node.fails("late")
        assert node.phase("p") == "Running", "what runs goes on"


async def test_after_a_reboot_containers_have_their_limit_again_and_with_an_older_driver_they_wait(
    tmp_path: Path,
) -> None:
    async with a_host(tmp_path) as host:
        node = host.node
        await host.reaches("driver")
        node.bind("p", a_container(mem=4), on={"main": (0,)})
        await node.runs("p")
        first = containers(node, "p")
        node.sim.runtime.reboot()
        await node.until(lambda: containers(node, "p") - first, "the container runs again")
        assert len(host.driver.limits) == 2, "under its new ID it has the limit, too"
        host.driver.has_call = False
        before = containers(node, "p")
        node.sim.runtime.reboot()
        await node.until(lambda: node.pod("p")["status"]["containerStatuses"][0]["restartCount"] > 2, "it tries again")
        assert not containers(node, "p") - before
        host.driver.has_call = True
        await node.until(lambda: containers(node, "p") - before, "with the driver it runs")
        assert len(host.driver.limits) == 3


def containers(node: Node, pod: str) -> set[str]:
    """The ID of the pod's container, if it runs."""
    (status,) = node.pod(pod)["status"]["containerStatuses"]
    return {status["containerID"]} if "running" in status["state"] else set()
