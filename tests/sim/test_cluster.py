"""The embedded cluster as a whole, with stand-ins for extender and plugin."""

from extender.sim import podspec
from extender.sim.cluster import EmbeddedCluster
from extender.sim.kubelet.status import NodeSpec
from tests.sim.builders import a_cluster, a_container, a_pod


async def test_a_pod_is_placed_by_the_extender_and_gets_its_devices_from_the_plugin() -> None:
    nodes = (NodeSpec(name="node-a", profile="t4x4"), NodeSpec(name="node-b", profile="t4x4"))
    async with EmbeddedCluster(a_cluster(*nodes)) as cluster:
        pod = cluster.create_pod(a_pod("train", a_container(gpu=2)))
        running = lambda: (cluster.pod("default", "train") or pod)["status"]["phase"] == "Running"  # noqa: E731
        await cluster.wait(running, 10, "the pod runs")
        placed = cluster.pod("default", "train")
        assert placed
        assert podspec.node_of(placed) == "node-a"
        assert placed["metadata"]["annotations"] == {"placed-by": "stand-in"}
        assert len(cluster.env(placed, "main")["DEVICES"].split(",")) == 2
        assert "Scheduled" in [e["reason"] for e in cluster.events("default", "train")]
