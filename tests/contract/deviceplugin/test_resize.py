"""The limits of running pods follow what the extender booked: with the helper and with the toolkit's hook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from extender.sim.apiserver import patch
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import PODS
from protos.contract import names, resize
from protos.contract.resize import Limited, Resized
from tests.contract.deviceplugin.test_isolation import MIB, a_host
from tests.contract.deviceplugin.test_prestart import Helped, helped
from tests.contract.deviceplugin.world import Node, a_container
from tests.sim.standin_toolkit import apply_limits

EXTENDER = Writer(names.EXTENDER, "status")


def answer(node: Node, name: str, number: str, by: Writer = EXTENDER, **amounts: int) -> None:
    """The extender's answer, or what somebody else writes."""
    text = resize.resized.encode(Resized(1, number, amounts, amounts))
    node.api.patch(PODS, ("default", name), {"metadata": {"annotations": {names.RESIZED: text}}}, patch.MERGE, by)


def outcome(node: Node, name: str) -> Limited | None:
    return resize.limited.decode(node.pod(name)["metadata"]["annotations"].get(names.LIMITED))


async def test_a_pod_is_limited_anew_also_by_a_new_plugin(tmp_path: Path) -> None:
    async with helped(tmp_path) as one:
        await one.host.reaches("driver")
        node = one.node
        node.bind("p", a_container("a", mem=4), a_container("b", mem=2), on={"a": (0,), "b": (0,)})
        await node.runs("p")
        assert one.limits("p") == [6144, 0]
        answer(node, "p", "forged", Writer("kubectl-edit"), a=9)
        answer(node, "p", "1", a=8)
        await node.until(lambda: one.limits("p") == [10240, 0], "the pod may use more")
        await node.until(lambda: outcome(node, "p") == Limited(1, "1"), "the plugin says so")
        answer(node, "p", "2", a=1)
        await node.until(lambda: one.limits("p") == [3072, 0], "and less")
        await node.until(lambda: outcome(node, "p") == Limited(1, "2"), "the plugin says so")
        await node.plugin.stop(kill=True)
        one.limiting.limits.clear()
        one._told()
        await node.plugin.start()
        await node.until(lambda: one.limits("p") == [3072, 0], "a new plugin sets it again")
        assert "ResizeFailed" not in node.events("p")
        assert "Resized" in node.events("p")


async def test_what_the_extender_booked_counts_for_the_plugins_own_placement(tmp_path: Path) -> None:
    async with helped(tmp_path) as one:
        await one.host.reaches("driver")
        node = one.node
        node.bind("p", a_container(mem=4), on={"main": (0,)})
        await node.runs("p")
        answer(node, "p", "1", main=12)
        await node.until(lambda: outcome(node, "p") == Limited(1, "1"), "it is resized")
        node.bind("foreign", a_container(mem=6))
        await node.runs("foreign")
        assert node.given("foreign") == [1]


async def test_without_a_helper_it_fails_with_the_remedy(tmp_path: Path) -> None:
    async with a_host(tmp_path) as host:
        await host.reaches("driver")
        node = host.node
        node.bind("p", a_container(mem=4), on={"main": (0,)})
        await node.runs("p")
        answer(node, "p", "1", main=8)
        await node.until(lambda: outcome(node, "p") is not None, "the plugin says so")
        told = outcome(node, "p")
        assert told is not None
        assert "add components/isolation-limits" in told.failed
        await node.until(lambda: "ResizeFailed" in node.events("p"), "an Event, too")


async def test_with_the_hook_the_container_itself_is_limited_and_a_restarted_one_again(tmp_path: Path) -> None:
    async with helped(tmp_path, toolkit="1.20.1") as one:
        await one.host.reaches("driver")
        node = one.node
        hook(one)
        node.bind("p", a_container(mem=4), on={"main": (0,)})
        await node.runs("p")
        answer(node, "p", "1", main=8)
        await node.until(lambda: own(one) == [8192], "the container may use more")
        assert one.limits("p") == [0, 0]
        node.sim.runtime.reboot()
        await node.until(lambda: own(one) == [8192, 8192], "the restarted container, too")
        assert "IsolationMismatch" not in node.events("p")


def hook(one: Helped) -> None:
    """The toolkit's hook limits each container that starts, by the same driver."""

    class Driver:
        has_call = True

        def set(self, uuid: str, group: Path, _soft: int, hard: int) -> None:
            one.limiting.set(uuid, str(group), hard)

    before = one.node.sim.runtime.hook

    def started(pod: dict[str, Any], container: Any) -> None:
        before(pod, container)
        group = one.pod(pod["metadata"]["name"]) / f"cri-containerd-{container.id}.scope"
        driver: Any = Driver()
        apply_limits(container.env, group, one.host.root, driver)

    one.node.sim.runtime.hook = started


def own(one: Helped) -> list[int]:
    """The limits of all containers that have one of their own, in MiB."""
    groups = [by for at, by in one.limiting.limits.items() if at.endswith(".scope")]
    return [hard // MIB for by in groups for hard in by.values()]
