"""What dcgm-exporter makes of the plugin's own List, and of the kubelet's: the plugin process, the real protocol."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from extender.sim.kubelet.kubelet import Settings
from protos.contract import names
from protos.kubelet.podresources.v1 import podresources_v1_pb2 as api
from protos.kubelet.podresources.v1 import podresources_v1_pb2_grpc as rpc
from tests.contract.deviceplugin.world import Node, a_container, a_node
from tests.unit.deviceplugin.dcgm_exporter import Series, series


async def pods(socket: Path) -> Sequence[api.PodResources]:
    """The List of this socket, asked as dcgm-exporter asks: a new connection each time."""
    options = [("grpc.default_authority", "localhost")]
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        stub = rpc.PodResourcesListerStub(channel)
        return (await stub.List(api.ListPodResourcesRequest(), timeout=10)).pod_resources


def owners(node: Node, found: list[Series]) -> list[tuple[int, str, str]]:
    """GPU, pod and container of each series that has a pod, sorted."""
    return sorted((node.uuids.index(one.gpu), one.pod, one.container) for one in found if one.pod)


class Exporter:
    """dcgm-exporter on the node of a test."""

    def __init__(self, node: Node, socket: Path) -> None:
        self.node, self.socket, self.last = node, socket, list[Series]()

    async def sees(self, *expected: tuple[int, str, str]) -> None:
        """Return once the series of the node's GPUs have these pods."""

        async def ask() -> bool:
            with contextlib.suppress(grpc.aio.AioRpcError):
                self.last = series(await pods(self.socket), self.node.uuids)
            return owners(self.node, self.last) == sorted(expected)

        for _ in range(600):
            if await ask():
                return
            self.node.sim.check()
            await asyncio.sleep(0.05)
        raise AssertionError(f"{owners(self.node, self.last)}\n{self.node.plugin.tail()}")


async def test_parts_and_whole_gpus_are_labelled_right_by_our_list_and_wrong_by_the_kubelets(tmp_path: Path) -> None:
    socket = tmp_path / "g.sock"
    async with a_node("--serve-pod-resources", str(socket)) as node:
        exporter = Exporter(node, socket)
        node.bind("one", a_container(mem=4), on={"main": (2,)})
        node.bind("two", a_container("a", mem=4, slices=20), a_container("b", mem=4), on={"a": (2,), "b": (1,)})
        node.bind("pair", a_container(mem=6), on={"main": (0, 1)}, annotations={names.GPU_COUNT: "2"})
        node.bind("whole", a_container(whole=1), on={"main": (3,)})
        await node.runs("one", "two", "pair", "whole")
        await exporter.sees(
            (0, "pair", "main"),
            (1, "pair", "main"),
            (1, "two", "b"),
            (2, "one", "main"),
            (2, "two", "a"),
            (3, "whole", "main"),
        )
        assert {one.vgpu for one in exporter.last if one.pod == "whole"} == {""}
        assert {one.vgpu for one in exporter.last if one.pod == "two"} == {"a", "b"}
        assert stated(socket) == 0o660

        kubelet = series(await pods(node.sim.pod_resources), node.uuids, names=[names.GPU_MEM, names.GPU_SLICE])
        copies = [one for one in kubelet if (one.pod, one.container) == ("two", "a")]
        assert len(copies) == 24, "one for each unit and slice"
        plain = series(await pods(node.sim.pod_resources), node.uuids)
        assert owners(node, plain) == [(3, "whole", "main")], "parts have no pod"

        node.delete("one")
        await exporter.sees(
            (0, "pair", "main"), (1, "pair", "main"), (1, "two", "b"), (2, "two", "a"), (3, "whole", "main")
        )


def stated(socket: Path) -> int:
    return socket.stat().st_mode & 0o777


async def test_a_pod_is_labelled_on_the_gpu_that_it_got_whatever_the_kubelet_counted(tmp_path: Path) -> None:
    """The kubelet may count an ID of another pod's GPU, the plugin give another GPU than the annotation says."""
    socket = tmp_path / "g.sock"
    kubelet = Settings(status_seconds=0.1, double_ids=1)
    async with a_node("--serve-pod-resources", str(socket), kubelet=kubelet) as node:
        node.bind("first", a_container(mem=12), on={"main": (2,)})
        await node.runs("first")
        node.bind("second", a_container(mem=1), on={"main": (1,)})
        await node.runs("second")
        node.bind("moved", a_container(mem=10), on={"main": (2,)})
        await node.runs("moved")
        (gpu,) = node.given("moved")
        assert gpu != 2
        counted = series(await pods(node.sim.pod_resources), node.uuids, names=[names.GPU_MEM])
        assert (2, "second", "main") in owners(node, counted), "of GPU 2 it has nothing"
        await Exporter(node, socket).sees((2, "first", "main"), (1, "second", "main"), (gpu, "moved", "main"))


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "ended"])
async def test_a_plugin_that_starts_anew_tells_the_same(kill: bool, tmp_path: Path) -> None:
    socket = tmp_path / "g.sock"
    async with a_node("--serve-pod-resources", str(socket)) as node:
        exporter = Exporter(node, socket)
        node.bind("p", a_container(mem=4), on={"main": (2,)})
        node.bind("w", a_container(whole=1), on={"main": (3,)})
        await node.runs("p", "w")
        await exporter.sees((2, "p", "main"), (3, "w", "main"))
        await node.plugin.stop(kill)
        assert socket.exists() is kill, "dcgm-exporter goes on without pods where there is no socket"
        await node.plugin.start()
        await node.until(lambda: stated(socket) if socket.exists() else 0, "the socket is there")
        await exporter.sees((2, "p", "main"), (3, "w", "main"))


async def test_without_a_kubelet_pods_keep_their_labels(tmp_path: Path) -> None:
    socket = tmp_path / "g.sock"
    async with a_node("--serve-pod-resources", str(socket)) as node:
        node.bind("p", a_container(mem=4), on={"main": (2,)})
        await node.runs("p")
        await Exporter(node, socket).sees((2, "p", "main"))
        await node.sim.stop_kubelet()
        await Exporter(node, socket).sees((2, "p", "main"))


async def test_it_is_off_by_default() -> None:
    async with a_node() as node:
        assert not list(node.sim.pod_resources.parent.glob("*gangshare*"))
