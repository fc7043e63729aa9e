"""The embedded cluster as a whole, with stand-ins for extender and plugin."""

from extender.sim import podspec
from extender.sim.cluster import EmbeddedCluster
from extender.sim.kubelet.status import NodeSpec
from tests.sim.builders import a_cluster, a_container, a_pod
from tests.sim.standin_plugin import RESOURCE


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
        told = lambda: "Scheduled" in [e["reason"] for e in cluster.events("default", "train")]  # noqa: E731
        await cluster.wait(told, 10, "kube-scheduler says so")


async def test_a_node_can_have_what_no_plugin_serves() -> None:
    asks = {"gpu": 3}
    node = NodeSpec(name="bare", annotations={"inventory": "four"}, extended={RESOURCE: "4"})
    async with EmbeddedCluster(a_cluster(node)) as cluster:
        assert cluster.nodes()[0]["metadata"]["annotations"] == {"inventory": "four"}
        cluster.create_pod(a_pod("fits", a_container(**asks)))
        await cluster.wait(lambda: _phase(cluster, "fits") == "Running", 10, "the pod runs")
        cluster.create_pod(a_pod("more", a_container(**asks), nodeName="bare"))
        await cluster.wait(lambda: _phase(cluster, "more") == "Failed", 10, "the kubelet counts")


def _phase(cluster: EmbeddedCluster, name: str) -> str:
    pod = cluster.pod("default", name)
    assert pod
    phase: str = pod["status"]["phase"]
    return phase
