"""Another plugin that serves MIG instances beside ours, and the switch from it to ours while pods run."""

from deviceplugin.fake import FakeSource
from protos.contract import names
from tests.contract.deviceplugin.world import NODE, Node, a_node
from tests.sim.standin_plugin import Plugin

LARGE = "nvidia.com/mig-3g.40gb"


def a_large_one() -> dict[str, object]:
    return {"name": "main", "resources": {"limits": {LARGE: "1"}}}


async def nvidias_plugin(node: Node) -> Plugin:
    """A plugin that serves the large instances of this machine, as NVIDIA's does with the strategy `mixed`."""
    machine = FakeSource(str(node.sim.profile), NODE, mig=True).read()
    other = Plugin(node.sim.kubelet_dir, 0, LARGE)
    other.devices = {gpu.uuid: "Healthy" for gpu in machine.gpus if gpu.profile == "3g.40gb"}
    await other.start()
    await node.until(lambda: node.allocatable.get(LARGE) == "3", "the other plugin serves")
    return other


async def test_instances_of_another_plugin_are_booked_and_taken_over_while_pods_run() -> None:
    async with a_node("--mig-strategy", "mixed", profile="h100-mig", ready=False) as node:
        await node.until(lambda: (node.sim.kubelet_dir / names.KUBELET_SOCKET).exists(), "the kubelet serves")
        other = await nvidias_plugin(node)
        node.bind("theirs", a_large_one())
        await node.runs("theirs")
        await node.plugin.start()
        await node.until(lambda: node.state == "ready", "the node is ready")
        await node.offered("nvidia.com/mig-1g.10gb")
        assert any(f"another device plugin serves {LARGE}" in text for text in node.node_events())
        taken = node.env("theirs")["DEVICES"]
        await node.until(
            lambda: taken in node.pod("theirs")["metadata"]["annotations"].get(names.ALLOCATION, ""), "known"
        )
        assert "GpuTakenOver" in node.events("theirs")
        await other.stop()
        await node.until(lambda: node.allocatable.get(LARGE) == "0", "nobody serves the resource")
        await node.offered(LARGE)
        for name in ("ours", "last"):
            node.bind(name, a_large_one())
            await node.runs(name)
        given = {taken, *(node.env(name)[names.VISIBLE_DEVICES] for name in ("ours", "last"))}
        assert given == set(other.devices), "each has its own"
        assert node.phase("theirs") == "Running"


async def test_the_default_strategy_leaves_instances_alone() -> None:
    async with a_node(profile="h100-mig") as node:
        assert node.health == ["ok"] * 5 + ["mig"] * 3
        assert not any("mig" in resource for resource in node.allocatable)
        assert node.allocatable[names.WHOLE_GPU] == "5"
