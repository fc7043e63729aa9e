"""Kubelets and plugins that come and go, GPUs that fall ill, another plugin beside ours."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from extender.sim.apiserver import patch
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import NODES
from extender.sim.process import Process, free_port
from protos.contract import names
from tests.contract.deviceplugin.world import NODE, Node, a_container, a_node
from tests.sim.standin_plugin import Plugin


async def test_a_kubelet_that_starts_anew_is_registered_with_again() -> None:
    async with a_node() as node:
        node.bind("before", a_container(mem=4), on={"main": (1,)})
        await node.runs("before")
        await node.restart_kubelet()
        await node.offered(names.GPU_MEM)
        node.bind("after", a_container(mem=4), on={"main": (3,)})
        await node.runs("before", "after")
        assert (node.given("before"), node.given("after")) == ([1], [3])
        assert len(list(node.sim.kubelet_dir.glob("gangshare-*.sock"))) == 3


async def test_while_no_kubelet_follows_the_node_takes_nothing_new() -> None:
    async with a_node() as node:
        await node.sim.stop_kubelet()
        await node.until(lambda: node.state == "leaving", "the node says leaving")
        node.sim.start_kubelet()
        await node.until(lambda: node.state == "ready", "the node is ready again")


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "ended"])
async def test_a_plugin_that_starts_anew_knows_what_was_answered(kill: bool) -> None:
    async with a_node() as node:
        node.bind("p", a_container("a", mem=4), a_container("b", mem=4), on={"a": (1,), "b": (2,)})
        await node.runs("p")
        await node.plugin.stop(kill)
        if not kill:
            assert node.state == "leaving"
        node.annotate("p", names.ALLOCATION, node.placed({"a": (3,), "b": (3,)}))
        await node.plugin.start()
        await node.until(lambda: (node.marked("p", "a"), node.marked("p", "b")) == ([1], [2]), "the truth is put back")
        await node.offered(names.GPU_MEM)
        node.bind("q", a_container(mem=11), on={"main": (1,)})
        await node.runs("q")
        assert node.given("q") != [1], "what was answered before counts"
        assert len(list(node.sim.kubelet_dir.glob("gangshare-*.sock"))) == 3


async def test_a_plugin_that_finds_no_api_server_offers_its_devices_and_waits() -> None:
    async with a_node(ready=False) as node:
        await node.server.stop()
        await node.plugin.start()
        await node.offered(names.GPU_MEM, names.GPU_SLICE, names.WHOLE_GPU)
        assert node.plugin.running


async def test_a_plugin_that_leaves_says_so_first_and_still_answers() -> None:
    async with a_node("--stop-delay", "3") as node:
        node.plugin.signal(signal.SIGTERM)
        await node.until(lambda: node.state == "leaving", "the node says leaving")
        node.bind("late", a_container(mem=4), on={"main": (2,)})
        await node.runs("late")
        assert node.given("late") == [2]


async def test_a_sick_gpu_gets_nothing_new_and_comes_back() -> None:
    async with a_node() as node:
        node.bind("on-it", a_container(mem=4), on={"main": (1,)})
        await node.runs("on-it")
        node.set_health(1, "sick:fell off")
        await node.until(lambda: node.health == ["ok", "sick:fell off", "ok", "ok"], "the inventory says so")
        await node.until(lambda: node.allocatable[names.GPU_MEM] == "46", "only its free memory is gone")
        node.bind("late", a_container(mem=4), on={"main": (1,)})
        await node.runs("late", "on-it")
        assert node.given("late") != [1]
        node.set_health(1, "ok")
        await node.until(lambda: node.allocatable[names.GPU_MEM] == "56", "its memory is back")
        await node.until(lambda: node.health == ["ok"] * 4, "the inventory says so")


async def test_a_gpu_in_mig_mode_is_shown_and_not_offered() -> None:
    async with a_node() as node:
        node.set_health(3, "mig")
        await node.until(lambda: node.allocatable[names.WHOLE_GPU] == "3", "one GPU less")
        await node.until(lambda: node.health == ["ok", "ok", "ok", "mig"], "the inventory says so")


async def test_a_resource_of_another_plugin_is_left_alone_until_it_goes() -> None:
    async with a_node(ready=False) as node:
        await node.until(lambda: (node.sim.kubelet_dir / names.KUBELET_SOCKET).exists(), "the kubelet serves")
        other = await another_plugin(node)
        node.bind("theirs", a_container(whole=1))
        await node.runs("theirs")
        await node.plugin.start()
        await node.until(lambda: node.state == "ready", "the node is ready")
        assert any("another device plugin serves nvidia.com/gpu" in text for text in node.node_events())
        index = node.uuids.index(node.env("theirs")["DEVICES"])
        await node.until(lambda: node.marked("theirs") == [index], "the running pod is taken over")
        assert "GpuTakenOver" in node.events("theirs")
        node.bind("later", a_container(whole=1))
        await node.runs("later")
        await node.until(lambda: node.marked("later") == [node.uuids.index(node.env("later")["DEVICES"])], "later too")
        await other.stop()
        await node.until(lambda: node.allocatable.get(names.WHOLE_GPU) == "0", "nobody serves the resource")
        node.bind("ours", a_container(mem=4), on={"main": (index,)})
        await node.runs("ours")
        assert node.given("ours") != [index], "the GPU that the other plugin gave is held whole"
        await node.offered(names.WHOLE_GPU)
        node.bind("switched", a_container(whole=1))
        await node.runs("switched")
        assert len(node.given("switched")) == 1
        assert node.phase("theirs") == "Running"


async def test_a_plugin_that_registers_a_resource_after_us_is_noticed_and_what_it_gave_is_known() -> None:
    async with a_node() as node:
        other = await another_plugin(node)
        node.bind("theirs", a_container(whole=1))
        await node.runs("theirs")
        index = node.uuids.index(node.env("theirs")["DEVICES"])
        await node.until(lambda: node.marked("theirs") == [index], "the annotation tells the truth")
        told = "another device plugin gives nvidia.com/gpu too"
        await node.until(lambda: any(told in text for text in node.node_events()), "an Event says so")
        node.bind("ours", a_container(mem=4), on={"main": (index,)})
        await node.runs("ours")
        assert node.given("ours") != [index]
        await other.stop()


async def another_plugin(node: Node) -> Plugin:
    """A plugin that serves this machine's GPUs whole, as NVIDIA's does."""
    from deviceplugin.fake import FakeSource

    other = Plugin(node.sim.kubelet_dir, 0, names.WHOLE_GPU)
    other.devices = {gpu.uuid: "Healthy" for gpu in FakeSource(str(node.sim.profile), NODE).read().gpus}
    await other.start()
    await node.until(lambda: node.allocatable.get(names.WHOLE_GPU) == "4", "the other plugin serves")
    return other


async def test_gpushare_pods_find_all_that_they_know() -> None:
    async with a_node("--gpushare", labels={"cgpu.disable.isolation": "true"}) as node:
        await node.until(lambda: node.allocatable.get(names.ALIYUN_MEM) == "56", "memory is allocatable")
        await node.until(lambda: node.allocatable.get(names.ALIYUN_COUNT) == "4", "the count is there")
        marks = {names.ALIYUN_IDX: "2", names.ALIYUN_POD: "4", names.ALIYUN_ASSIGNED: "false"}
        node.bind("p", a_container(aliyun=4), on={"main": (2,)}, annotations=marks)
        await node.runs("p")
        env = node.env("p")
        assert env[names.VISIBLE_DEVICES] == node.uuids[2]
        assert (env[names.ALIYUN_IDX], env[names.ALIYUN_DEV], env[names.CGPU_DISABLE]) == ("2", "14", "true")
        assigned = lambda: node.pod("p")["metadata"]["annotations"].get(names.ALIYUN_ASSIGNED) == "true"  # noqa: E731
        await node.until(assigned, "the pod is marked assigned")
        await node.restart_kubelet()
        await node.until(lambda: node.allocatable.get(names.ALIYUN_COUNT) == "4", "the count stays")


async def test_time_slicing_as_nvidia_configures_it(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "version: v1\nsharing: {timeSlicing: {failRequestsGreaterThanOne: true, "
        "resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
    )
    async with a_node("--time-slicing-config", str(config), "--standalone") as node:
        await node.until(lambda: node.allocatable.get(names.WHOLE_GPU) == "16", "four replicas of four GPUs")
        for i in range(5):
            node.bind(f"p{i}", a_container(whole=1))
        await node.runs(*(f"p{i}" for i in range(5)))
        assert sorted(node.given(f"p{i}")[0] for i in range(5)) == [0, 0, 0, 0, 1]
        assert node.env("p0")[names.ENV_SLICES] == "25"
        node.bind("two", a_container(whole=2))
        await node.fails("two")
        assert "a container may ask one nvidia.com/gpu at most on this node" in node.message("two")


async def test_what_the_plugin_counts() -> None:
    port = free_port()
    async with a_node("--metrics-port", str(port)) as node:
        node.bind("p", a_container(mem=4), on={"main": (2,)})
        node.bind("huge", a_container(mem=15))
        await node.runs("p")
        await node.fails("huge")
        text = await asyncio.to_thread(_read, f"http://127.0.0.1:{port}/metrics")
        for line in (
            'gangshare_plugin_allocate_seconds_count{resource="gangshare.io/gpu-mem"} 2.0',
            'gangshare_plugin_refusals_total{reason="NodeFull"} 1.0',
            'gangshare_plugin_registered{resource="gangshare.io/gpu-mem"} 1.0',
            'gangshare_plugin_gpus{health="ok"} 4.0',
            "gangshare_plugin_duplicate_devices_total 0.0",
        ):
            assert line in text


async def test_gpus_that_come_later_and_are_too_many_end_the_plugin_with_the_sentence() -> None:
    async with a_node("--slices-per-gpu", "9000", profile="t4x1") as node:
        node.sim.profile.write_text("gpus: [{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}]")
        await node.until(lambda: not node.plugin.running, "the plugin ends")
        (said,) = node.plugin.tail(1).splitlines()
        assert said.startswith("gangshare plugin: gangshare.io/gpu-slice: 108000 devices make a message of up to")


async def test_a_profile_that_is_spoilt_later_is_told_and_the_last_one_is_served() -> None:
    told = "the profile of this node's fake GPUs cannot be read; the last one that could is used: "
    async with a_node(profile="t4x1") as node:
        node.sim.profile.write_text("gpus: [{memory: 1}]")
        await node.until(lambda: any(told in text for text in node.node_events()), "an Event says so")
        assert [text for text in node.node_events() if "unknown field `memory`" in text]
        assert (len(node.uuids), node.health) == (1, ["ok"])


async def test_without_an_extender_the_plugin_tells_of_a_cordon_that_names_no_gpu() -> None:
    async with a_node("--standalone", profile="t4x1") as node:
        body = {"metadata": {"annotations": {names.CORDONED_GPUS: "7"}}}
        node.api.patch(NODES, ("", NODE), body, patch.MERGE, Writer("kubectl-edit"))
        told = "gangshare.io/cordoned-gpus names '7': expected indexes or UUIDs of GPUs: 0 or their UUIDs"
        await node.until(lambda: told in node.node_events(), "an Event says so")


async def test_metrics_on_a_port_that_is_taken_end_the_start_with_a_sentence() -> None:
    async with a_node(ready=False) as node, await asyncio.start_server(lambda *_: None, "0.0.0.0", 0) as taken:
        port = taken.sockets[0].getsockname()[1]
        plugin = Process("second", [*node.plugin._command, "--metrics-port", str(port)], node.plugin.log.parent)
        await plugin.start()
        await node.until(lambda: not plugin.running, "the plugin ends")
        (said,) = plugin.tail(1).splitlines()
        assert said.startswith(f"gangshare plugin: --metrics-port is {port}: expected a free port")


def _read(url: str) -> str:
    import urllib.request

    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--memory-unit", "GB"], "'GB' is no memory unit"),
        (["--fake", "hgx-h200", "--memory-unit", "MiB"], "the kubelet takes 4194304: set a memory unit of"),
        (["--fake", "none-such"], "no profile 'none-such': expected a YAML file or one of"),
        (["--node-name", ""], "--node-name is empty"),
        (["--time-slicing-config", "/none"], "/none: cannot be read"),
        (["--kubeconfig", "/none"], "/none"),
        (["--ignored-xids", "x"], "'x' is no list of XIDs"),
    ],
)
def test_what_cannot_be_served_ends_the_start_with_a_sentence(options: list[str], says: str, tmp_path: Path) -> None:
    folder = ["--kubelet-dir", str(tmp_path), "--pod-resources", str(tmp_path / "p.sock")]
    command = [sys.executable, "-m", "deviceplugin", "--node-name", "n", "--fake", "t4x1", *folder, *options]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
    )
    environment = {"PATH": "", "GANGSHARE_KUBECONFIG": str(kubeconfig)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith(("gangshare plugin: ", "error: --"))
    assert says in ended.stderr.splitlines()[-1]
