"""The socket on which dcgm-exporter asks: its life, its clients and its failures."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from deviceplugin import holdings, true_list
from deviceplugin.devices import Sharing
from deviceplugin.metrics import Metrics
from deviceplugin.offer import Offer
from deviceplugin.podresources import PodResourcesError
from deviceplugin.record import Record
from deviceplugin.true_list import TrueList
from protos.contract.objects import Pod
from protos.kubelet.podresources.v1 import podresources_v1_pb2 as api
from protos.kubelet.podresources.v1 import podresources_v1_pb2_grpc as rpc
from tests.unit.deviceplugin.builders import a_container, a_machine, a_pod


class Kubelet:
    """A kubelet that lists the pods of the cluster without devices, or does not answer."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.silent, self.asked = cluster, False, 0

    async def pods(self) -> Sequence[api.PodResources]:
        self.asked += 1
        if self.silent:
            raise PodResourcesError("no answer")
        return [
            api.PodResources(namespace=namespace, name=name, containers=[api.ContainerResources(name="main")])
            for namespace, name in self.cluster.pods
        ]


class Cluster:
    """Pods of the node."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pods}
        self.pods_listed = asyncio.Event()
        self.pods_listed.set()


class World:
    """A server with three pods that have GPUs."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "gangshare.sock"
        pods = [a_pod(name, a_container(mem=4)) for name in ("a", "b", "c")]
        self.cluster, self.record, self.offer = Cluster(*pods), Record(), Offer(Sharing())
        self.kubelet, self.metrics = Kubelet(self.cluster), Metrics()
        self.offer.set(a_machine(), {}, {})
        for i, pod in enumerate(pods):
            self.record.fix(pod.metadata.uid, {"main": (f"GPU-{i}",)})
        self.server = self.another()

    def another(self) -> TrueList:
        parts: Any = self.kubelet, self.cluster, self.record, self.offer, self.metrics
        return TrueList(self.socket, *parts)

    @contextlib.asynccontextmanager
    async def running(self, server: TrueList | None = None) -> AsyncIterator[None]:
        task = asyncio.create_task((server or self.server).run())
        try:
            await self.until_served()
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until_served(self) -> None:
        async with asyncio.timeout(20):
            while not self.socket.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def told(self) -> dict[str, list[str]]:
        """The devices of each pod."""
        async with self.stub() as stub:
            answer = await stub.List(api.ListPodResourcesRequest(), timeout=10)
        return {
            pod.name: [device for one in pod.containers for entry in one.devices for device in entry.device_ids]
            for pod in answer.pod_resources
        }

    @contextlib.asynccontextmanager
    async def stub(self) -> AsyncIterator[Any]:
        options = [("grpc.default_authority", "localhost")]
        async with grpc.aio.insecure_channel(f"unix:{self.socket}", options=options) as channel:
            yield rpc.PodResourcesListerStub(channel)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(true_list, "LOOK_S", 0.01)
    monkeypatch.setattr(true_list, "FRESH_S", 0.0)
    return World(tmp_path)


ALL = {"a": ["GPU-0::main"], "b": ["GPU-1::main"], "c": ["GPU-2::main"]}


async def test_who_asks_is_told_the_true_gpus_and_the_socket_is_roots(world: World) -> None:
    async with world.running():
        assert await world.told() == ALL
        assert stat.S_IMODE(world.socket.stat().st_mode) == 0o660
    assert list(world.socket.parent.iterdir()) == [], "dcgm-exporter goes on without pods where there is no socket"


async def test_the_other_questions_are_for_the_kubelet(world: World) -> None:
    async with world.running(), world.stub() as stub:
        for call in (
            stub.Get(api.GetPodResourcesRequest()),
            stub.GetAllocatableResources(api.AllocatableResourcesRequest()),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_of_many_clients_the_kubelet_sees_one_question(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(true_list, "FRESH_S", 60.0)
    async with world.running():
        answers = await asyncio.gather(*(world.told() for _ in range(true_list.CALLS)))
    assert answers == [ALL] * true_list.CALLS
    assert world.kubelet.asked == 1


async def test_a_silent_kubelet_costs_no_label(world: World) -> None:
    world.kubelet.silent = True
    async with world.running():
        assert await world.told() == ALL


async def test_a_refused_pod_and_one_that_breaks_the_code_leave_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.record.refuse("uid-a")
    real = holdings.ids

    def broken(pod: Pod, *rest: Any) -> holdings.Ids:
        if pod.metadata.name == "b":
            raise RuntimeError("a bug")
        return real(pod, *rest)

    monkeypatch.setattr(holdings, "ids", broken)
    async with world.running():
        assert await world.told() == {"a": [], "b": [], "c": ["GPU-2::main"]}


async def test_nothing_is_served_before_the_pods_are_known(world: World) -> None:
    world.cluster.pods_listed.clear()
    left = dead_socket(world.socket)
    task = asyncio.create_task(world.server.run())
    try:
        async with asyncio.timeout(20):
            while left.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert not world.socket.exists()
        world.cluster.pods_listed.set()
        await world.until_served()
        assert await world.told() == ALL
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def dead_socket(path: Path) -> Path:
    """A socket that a killed process left behind."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    return path


async def test_what_a_killed_plugin_left_is_replaced(world: World) -> None:
    dead_socket(world.socket)
    dead_socket(world.socket.with_name(f"{world.socket.name}~"))
    task = asyncio.create_task(world.server.run())
    try:
        await asyncio.sleep(0)  # the task sweeps before its first pause
        await world.until_served()
        assert await world.told() == ALL
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert list(world.socket.parent.iterdir()) == []


async def test_a_removed_socket_is_made_again(world: World) -> None:
    async with world.running():
        assert await world.told() == ALL
        world.socket.unlink()
        await world.until_served()
        assert await world.told() == ALL


async def test_another_owner_of_the_socket_is_no_reason_to_make_it_again(world: World) -> None:
    async with world.running():
        before = world.socket.stat().st_ino
        world.socket.chmod(0o666)
        await asyncio.sleep(0.05)
        assert (world.socket.stat().st_ino, stat.S_IMODE(world.socket.stat().st_mode)) == (before, 0o666)


async def test_the_socket_of_a_live_process_is_not_taken_until_that_ends(world: World) -> None:
    async with world.running():
        inode = world.socket.stat().st_ino
        task = asyncio.create_task(world.another().run())
        await asyncio.sleep(0.1)
        assert world.socket.stat().st_ino == inode
        assert await world.told() == ALL
    await world.until_served()
    assert await world.told() == ALL
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_file_of_another_kind_is_left_and_a_folder_that_comes_later_is_used(world: World) -> None:
    world.socket.write_text("mine")
    task = asyncio.create_task(world.server.run())
    await asyncio.sleep(0.1)
    assert world.socket.read_text() == "mine"
    world.socket.unlink()
    await world.until_served()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    world.socket = world.socket.parent / "later" / "g.sock"
    task = asyncio.create_task(world.another().run())
    await asyncio.sleep(0.1)
    world.socket.parent.mkdir()
    await world.until_served()
    assert await world.told() == ALL
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_too_long_an_answer_is_cut_and_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = holdings.fitting
    monkeypatch.setattr(holdings, "fitting", lambda pods: real(pods, most=120))
    async with world.running():
        told = await world.told()
    assert set(told) < set(ALL)
    assert [told[name] for name in told] == [ALL[name] for name in told]
    assert world.metrics.pod_resources.labels("short")._value.get() == 1
