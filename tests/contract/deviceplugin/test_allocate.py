"""Pods bound to a node get the GPUs that their annotations name: the plugin process against the embedded kubelet."""

import asyncio
import contextlib
import json
from pathlib import Path

import grpc
import pytest

from deviceplugin.answers import CDI_ANNOTATION
from extender.sim.kubelet import checkpoint
from extender.sim.kubelet.kubelet import Settings
from protos.contract import names
from protos.kubelet.deviceplugin.v1beta1.deviceplugin_v1beta1_pb2 import ContainerAllocateResponse as Answer
from protos.kubelet.podresources.v1 import podresources_v1_pb2 as api
from protos.kubelet.podresources.v1 import podresources_v1_pb2_grpc as rpc
from tests.contract.deviceplugin.world import Node, a_container, a_node


async def test_the_node_offers_its_gpus_in_three_resources_and_describes_them() -> None:
    async with a_node() as node:
        await node.until(lambda: node.allocatable.get(names.GPU_MEM) == "56", "memory is allocatable")
        assert node.allocatable[names.GPU_SLICE] == "400"
        assert node.allocatable[names.WHOLE_GPU] == "4"
        found = node.inventory
        assert found is not None
        assert [(gpu.index, gpu.model, gpu.mem) for gpu in found.gpus] == [(i, "Tesla T4", 14) for i in range(4)]
        assert (0, 1, "NODE") in found.links


async def test_every_container_gets_the_gpus_of_its_annotation() -> None:
    async with a_node(profile="dgx1-v100") as node:
        node.bind("one", a_container(mem=4), on={"main": (5,)})
        both = [a_container("a", mem=4, slices=20), a_container("b", mem=4)]
        node.bind("two", *both, on={"a": (3,), "b": (6,)})
        node.bind("pair", a_container(mem=8), on={"main": (0, 3)}, annotations={names.GPU_COUNT: "2"})
        node.bind("whole", a_container(whole=2), on={"main": (4, 7)})
        node.bind("prepared", a_container(mem=4), init=[a_container("i", mem=6)], on={"i": (2,), "main": (2,)})
        side = {**a_container("side", mem=2), "restartPolicy": "Always"}
        node.bind("helped", a_container(mem=4), init=[side], on={"side": (1,), "main": (2,)})
        await node.runs("one", "two", "pair", "whole", "prepared", "helped")
        assert node.given("one") == [5]
        assert (node.given("two", "a"), node.given("two", "b")) == ([3], [6])
        assert node.given("pair") == [0, 3]
        assert node.given("whole") == [4, 7]
        assert (node.given("prepared", "i"), node.given("prepared")) == ([2], [2])
        assert (node.given("helped", "side"), node.given("helped")) == ([1], [2])
        assert node.env("two", "a")[names.ENV_MEM_MIB] == "4096"
        assert node.env("two", "a")[names.ENV_SLICES] == "20"
        assert node.env("pair")[names.ENV_MEM_MIB] == "4096"
        assert node.env("whole")[names.ENV_MEM_MIB] == "32501"
        for pod in ("one", "two", "pair", "whole"):
            assert "GpuAdopted" not in node.events(pod)


@pytest.mark.parametrize("only_active", [True, False], ids=["List from 1.34", "List before 1.34"])
async def test_a_burst_of_equal_pods_is_told_apart_while_others_ask_the_kubelet_too(only_active: bool) -> None:
    kubelet = Settings(status_seconds=0.1, list_only_active=only_active, double_ids=2)
    async with a_node("--stop-delay", "0", profile="dgx-a100-80g", kubelet=kubelet) as node:
        asking = asyncio.create_task(_poll_list(node, 50))
        node.bind("ended", a_container(whole=9))  # fails, and stays in the List of old kubelets
        await node.fails("ended")
        for i in range(20):
            node.bind(f"p{i}", a_container("a", mem=3), a_container("b", mem=3), on={"a": (i % 8,), "b": (-i % 8,)})
            node.bind(f"q{i}", a_container(mem=3), on={"main": (7 - i % 8,)})
        await node.runs(*(f"{kind}{i}" for kind in "pq" for i in range(20)))
        asking.cancel()
        for i in range(20):
            assert (node.given(f"p{i}", "a"), node.given(f"p{i}", "b")) == ([i % 8], [-i % 8])
            assert node.given(f"q{i}") == [7 - i % 8]


async def test_a_pod_that_no_extender_placed_is_adopted_and_told_so() -> None:
    async with a_node() as node:
        node.bind("other", a_container(mem=4), on={"main": (2,)})
        node.bind("own", a_container(mem=4))
        await node.runs("other", "own")
        await node.until(lambda: node.marked("own") == [2], "the annotation is written")
        assert node.given("own") == [2], "packed"
        await node.until(lambda: "GpuAdopted" in node.events("own"), "an Event says so")
        assert ("gangshare-plugin", "status") in node.managers("own")


async def test_alone_the_plugin_places_pods_as_a_matter_of_course() -> None:
    async with a_node("--standalone", profile="dgx1-v100") as node:
        node.bind("pair", a_container(whole=2))
        node.bind("mem", a_container(mem=4), annotations={names.GPU_UUID: f"!{node.uuids[1]}"})
        await node.runs("pair", "mem")
        a, b = node.given("pair")
        found = node.inventory
        assert found is not None
        assert {(x, y): kind for x, y, kind in found.links}[a, b] == "NV2"
        assert not set(node.given("mem")) & {a, b}
        await node.until(lambda: node.marked("pair") == [a, b], "the annotation is written")
        assert node.events("pair") == []


async def test_a_pod_on_a_full_gpu_is_moved_and_told_so() -> None:
    async with a_node() as node:
        node.bind("big", a_container(mem=12), on={"main": (1,)})
        await node.runs("big")
        node.bind("late", a_container(mem=4), on={"main": (1,)})
        await node.runs("late")
        assert node.given("late") != [1]
        await node.until(lambda: node.marked("late") == node.given("late"), "the annotation is corrected")
        await node.until(lambda: "GpuMoved" in node.events("late"), "an Event says so")
        messages = [event["message"] for event in node.kubectl.events("default", "late")]
        assert any("GPU 1 has 2 GiB" in message for message in messages)


async def test_a_pod_that_fits_nowhere_is_refused_with_the_numbers() -> None:
    async with a_node() as node:
        node.bind("huge", a_container(mem=15), on={"main": (1,)})
        await node.fails("huge")
        assert "no GPU of this node has enough free for 15 GiB on one GPU: freest: GPU 0 with 14 GiB" in node.message(
            "huge"
        )
        await node.until(lambda: "NodeFull" in node.events("huge"), "an Event says so")


@pytest.mark.parametrize(
    ("container", "annotations", "says"),
    [
        (a_container(mem=3), {names.GPU_COUNT: "2"}, "gangshare.io/gpu-mem 3 does not divide by"),
        (a_container(mem=3, whole=1), {}, "whole GPUs or parts, not both"),
        (a_container(mem=3), {names.LINK: "fast"}, "gangshare.io/link is 'fast'"),
        (
            {**a_container(mem=3), "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
            {},
            "sets NVIDIA_VISIBLE_DEVICES itself",
        ),
    ],
)
async def test_an_ask_that_makes_no_sense_is_refused_with_its_sentence(
    container: dict[str, object], annotations: dict[str, str], says: str
) -> None:
    async with a_node() as node:
        node.bind("odd", container, annotations=annotations)
        await node.fails("odd")
        assert says in node.message("odd")


async def test_an_annotation_edited_later_is_put_back() -> None:
    async with a_node() as node:
        node.bind("p", a_container(mem=4), on={"main": (1,)})
        await node.runs("p")
        node.annotate("p", names.ALLOCATION, node.placed({"main": (3,)}))
        await node.until(lambda: node.marked("p") == [1], "the annotation is put back")
        node.annotate("p", names.ALLOCATION, None)
        await node.until(lambda: node.marked("p") == [1], "the annotation is written again")
        await node.until(lambda: "GpuAllocationRestored" in node.events("p"), "an Event says so")


async def test_memory_that_a_deleted_pod_gave_back_is_given_again() -> None:
    async with a_node(profile="t4x1") as node:
        for i in range(5):
            node.bind(f"p{i}", a_container(mem=14), on={"main": (0,)})
            await node.runs(f"p{i}")
            node.delete(f"p{i}")
            await node.until(lambda i=i: node.kubectl.pod("default", f"p{i}") is None, "the pod is gone")  # type: ignore[misc]
        assert all("GpuMoved" not in node.events(f"p{i}") for i in range(5))


async def test_ids_are_steered_to_the_gpus_given() -> None:
    async with a_node() as node:
        node.bind("p", a_container(mem=4), on={"main": (2,)})
        await node.runs("p")
        path = node.sim.kubelet_dir / names.KUBELET_CHECKPOINT
        (entry,) = json.loads(path.read_text())["Data"]["PodDeviceEntries"]
        ids = [device for ids in entry["DeviceIDs"].values() for device in ids]
        assert sorted(ids) == [f"{node.uuids[2]}::m{n}" for n in range(4)]


def answers(node: Node, pod: str) -> list[Answer]:
    """What the plugin answered for a pod, as its kubelet wrote it down."""
    grants, _ = checkpoint.read(node.sim.kubelet_dir)
    given = grants[node.pod(pod)["metadata"]["uid"]]
    return [grant.response for by in given.values() for grant in by.values()]


async def test_device_nodes_are_listed_where_wanted() -> None:
    async with a_node("--device-list-strategy", "device-nodes") as node:
        node.bind("p", a_container(mem=4), on={"main": (2,)})
        await node.runs("p")
        assert node.given("p") == [2]
        (answer,) = answers(node, "p")
        assert "/dev/nvidia2" in [device.host_path for device in answer.devices]


@pytest.mark.parametrize("strategy", ["volume-mounts", "cdi-cri", "cdi-annotations"])
async def test_without_the_environment_a_new_plugin_knows_what_was_given(strategy: str, tmp_path: Path) -> None:
    options = ["--device-list-strategy", strategy, "--cdi-kind", "vendor.com/gpu", "--cdi-spec-dirs", str(tmp_path)]
    async with a_node(*options, profile="t4x1") as node:
        (uuid,) = node.uuids
        if strategy.startswith("cdi-"):
            assert node.health == ["sick:no-cdi-device"]
            spec = {"kind": "vendor.com/gpu", "devices": [{"name": uuid}]}
            (tmp_path / "spec.json").write_text(json.dumps(spec))
        await node.until(lambda: node.health == ["ok"], "the GPU is well")
        await node.until(lambda: node.allocatable.get(names.GPU_MEM) == "14", "it is offered")
        node.bind("p", a_container("a", mem=4, slices=5), a_container("b", mem=5), on={"a": (0,), "b": (0,)})
        await node.runs("p")
        for answer in answers(node, "p"):
            assert answer.envs[names.ENV_UUIDS] == uuid
            mounts = [(mount.host_path, mount.container_path) for mount in answer.mounts]
            if strategy == "cdi-cri":
                assert ([device.name for device in answer.cdi_devices], mounts) == ([f"vendor.com/gpu={uuid}"], [])
                assert answer.envs[names.VISIBLE_DEVICES] == "void"
            elif strategy == "cdi-annotations":
                assert dict(answer.annotations) == {CDI_ANNOTATION: f"vendor.com/gpu={uuid}"}
                assert answer.envs[names.VISIBLE_DEVICES] == "void"
            else:
                assert mounts == [("/dev/null", f"/var/run/nvidia-container-devices/{uuid}")]
                assert answer.envs[names.VISIBLE_DEVICES] == "/var/run/nvidia-container-devices"
        await node.plugin.stop()
        await node.plugin.start()
        node.annotate("p", names.ALLOCATION, None)
        await node.until(lambda: node.marked("p", "a") == [0], "the annotation is written again from the record")


async def _poll_list(node: Node, rate: float) -> None:
    options = [("grpc.default_authority", "localhost")]
    async with grpc.aio.insecure_channel(f"unix:{node.sim.pod_resources}", options=options) as channel:
        stub = rpc.PodResourcesListerStub(channel)
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):  # the limit is shared by all who ask
                await stub.List(api.ListPodResourcesRequest())
            await asyncio.sleep(1 / rate)
