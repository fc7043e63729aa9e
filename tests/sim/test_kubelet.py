"""The kubelet stand-in against a real device plugin over unix sockets: as unkind as the real one."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest

from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import EVENTS, NODES, PODS
from extender.sim.kubelet import runtime
from extender.sim.kubelet.devices import DeviceManager, Endpoint
from extender.sim.kubelet.kubelet import Kubelet, Settings, device_plugin_folder, pod_resources_folder
from extender.sim.kubelet.runtime import Runtime
from extender.sim.kubelet.status import NodeSpec
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as plugin_api
from protos.kubelet.podresources.v1 import podresources_v1_pb2 as resources_api
from protos.kubelet.podresources.v1 import podresources_v1_pb2_grpc as resources_rpc
from tests.sim.builders import a_container, a_pod
from tests.sim.conftest import until
from tests.sim.standin_plugin import RESOURCE, Plugin, register

ME = Writer("tester")
NODE = "node-1"


class World:
    """One node with its kubelet and one plugin."""

    def __init__(self, api: Api, folder: Path) -> None:
        self.api, self.folder, self.runtime = api, folder, Runtime()
        self.sockets = device_plugin_folder(folder)
        self.plugin: Plugin | None = None
        self.kubelet: Kubelet | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, **settings: Any) -> Kubelet:
        made = Settings(**{"status_seconds": 0.05, **settings})
        self.kubelet = Kubelet(self.api, NodeSpec(name=NODE, cpu="8"), self.folder, self.runtime, made)
        self._task = asyncio.create_task(self.kubelet.run())
        await asyncio.wait_for(self.kubelet.ready.wait(), 10)
        return self.kubelet

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def plug_in(self, count: int = 8) -> Plugin:
        self.plugin = Plugin(self.sockets, count)
        await self.plugin.start()
        await until(lambda: self.offered() == (str(count), str(count)), "devices in the node status")
        return self.plugin

    def offered(self) -> tuple[str | None, str | None]:
        status = self.api.get(NODES, ("", NODE)).obj["status"]
        return status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)

    def create(self, name: str, *containers: dict[str, Any], **more: Any) -> str:
        uid: str = self.api.create(PODS, "default", a_pod(name, *containers, nodeName=NODE, **more), ME).obj[
            "metadata"
        ]["uid"]
        return uid

    def status(self, name: str) -> dict[str, Any]:
        item = self.api.store.get(PODS, ("default", name))
        return item.obj["status"] if item else {"phase": "gone"}

    async def phase(self, name: str, phase: str) -> None:
        await until(lambda: self.status(name)["phase"] == phase, f"{name} is {phase}")

    def devices(self, uid: str, container: str = "main") -> set[str]:
        found = self.runtime.get(uid, container)
        assert found
        return set(found.env["DEVICES"].split(","))

    async def list(self) -> dict[str, dict[str, list[str]]]:
        """Pod → container → device IDs, by PodResources List."""
        async with grpc.aio.insecure_channel(f"unix:{pod_resources_folder(self.folder)}/kubelet.sock") as channel:
            answer = await resources_rpc.PodResourcesListerStub(channel).List(resources_api.ListPodResourcesRequest())
        return {
            p.name: {c.name: [i for d in c.devices for i in d.device_ids] for c in p.containers}
            for p in answer.pod_resources
        }


@pytest.fixture
async def world(api: Api) -> AsyncIterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))  # short: socket paths are limited
    world = World(api, folder)
    yield world
    await world.stop()
    if world.plugin:
        await world.plugin.stop()
    shutil.rmtree(folder)


async def test_a_pod_gets_exactly_the_devices_it_asks_and_runs_with_the_plugins_environment(world: World) -> None:
    await world.start()
    await world.plug_in()
    uid = world.create("p", a_container(gpu=3))
    await world.phase("p", "Running")
    assert len(world.devices(uid)) == 3
    assert world.status("p")["containerStatuses"][0]["state"]["running"]


async def test_devices_of_ordinary_init_containers_are_offered_again_but_those_of_sidecars_are_kept(
    world: World,
) -> None:
    await world.start()
    await world.plug_in()
    sidecar = {**a_container("sidecar", gpu=2), "restartPolicy": "Always"}
    uid = world.create("p", a_container(gpu=2), initContainers=[a_container("init", gpu=2), sidecar])
    await world.phase("p", "Running")
    init, kept, main = (world.devices(uid, name) for name in ("init", "sidecar", "main"))
    assert init == kept, "the sidecar was offered what the init container had"
    assert not kept & main


async def test_the_later_container_reuses_what_an_init_container_had(world: World) -> None:
    await world.start()
    plugin = await world.plug_in(2)
    uid = world.create("p", a_container(gpu=2), initContainers=[a_container("init", gpu=2)])
    await world.phase("p", "Running")
    assert world.devices(uid, "init") == world.devices(uid)
    assert len(plugin.asked) == 2


@pytest.mark.parametrize(
    ("mood", "told"),
    [
        ("refuse", "rpc error: code = FailedPrecondition desc = no GPU for you"),
        ("sulk", "rpc error: code = Internal desc = no preference today"),
    ],
)
async def test_any_error_of_the_plugin_fails_the_pod_for_ever(world: World, mood: str, told: str) -> None:
    await world.start()
    await world.plug_in()
    (world.sockets / mood).touch()
    world.create("p", a_container(gpu=1))
    await world.phase("p", "Failed")
    status = world.status("p")
    assert status["reason"] == "UnexpectedAdmissionError"
    assert status["message"].startswith("Pod was rejected: Allocate failed due to ")
    assert status["message"].endswith(f"{told}, which is unexpected")
    await until(lambda: list(world.api.store.items(EVENTS)), "an Event")
    assert [i.obj["reason"] for i in world.api.store.items(EVENTS)] == ["UnexpectedAdmissionError"]
    (world.sockets / mood).unlink()
    uid = world.create("q", a_container(gpu=8))
    await world.phase("q", "Running")
    assert len(world.devices(uid)) == 8, "nothing leaked from the failed pod"


async def test_a_pod_that_asks_more_than_is_left_fails(world: World) -> None:
    await world.start()
    await world.plug_in(2)
    world.create("p", a_container(gpu=3))
    await world.phase("p", "Failed")
    assert (
        f"requested number of devices unavailable for {RESOURCE}. Requested: 3, Available: 2"
        in (world.status("p")["message"])
    )


async def test_admission_is_serial_and_list_shows_the_pod_under_admission_without_devices(world: World) -> None:
    await world.start()
    plugin = await world.plug_in()
    world.create("first", a_container(gpu=1))
    await world.phase("first", "Running")
    plugin.allocated.clear()
    world.create("second", a_container(gpu=1))
    world.create("third", a_container(gpu=1))
    await asyncio.sleep(0.1)
    listed = await world.list()
    assert (len(listed["first"]["main"]), listed["second"]["main"]) == (1, [])
    assert "third" not in listed
    plugin.allocated.set()
    await world.phase("third", "Running")
    assert all(len(c["main"]) == 1 for c in (await world.list()).values())


async def test_finished_pods_are_listed_only_before_1_34(world: World) -> None:
    await world.start()
    await world.plug_in()
    done = {runtime.RUN_SECONDS: "0.05"}
    world.create("p", a_container(gpu=1), restartPolicy="Never", annotations=done)
    await world.phase("p", "Succeeded")
    assert await world.list() == {}
    await world.stop()
    await world.start(list_only_active=False)
    await until(lambda: world.kubelet and world.kubelet._pods, "the pod is known again")
    assert await world.list() == {"p": {"main": []}}


async def test_podresources_is_rate_limited(world: World) -> None:
    await world.start()
    async with grpc.aio.insecure_channel(f"unix:{pod_resources_folder(world.folder)}/kubelet.sock") as channel:
        stub = resources_rpc.PodResourcesListerStub(channel)
        calls = [stub.List(resources_api.ListPodResourcesRequest()) for _ in range(200)]
        found = await asyncio.gather(*calls, return_exceptions=True)
    refused = [e for e in found if isinstance(e, grpc.aio.AioRpcError)]
    assert 0 < len(refused) <= 190, "the first ten pass"
    assert {e.code() for e in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}


async def test_when_the_plugins_stream_ends_its_devices_are_gone_but_counted_in_the_capacity(world: World) -> None:
    await world.start()
    plugin = await world.plug_in(4)
    uid = world.create("runs", a_container(gpu=1))
    await world.phase("runs", "Running")
    await plugin.stop()
    await until(lambda: world.offered() == ("4", "0"), "zero allocatable")
    world.create("p", a_container(gpu=1))
    await world.phase("p", "Failed")
    assert f"no healthy devices present; cannot allocate unhealthy devices {RESOURCE}" in world.status("p")["message"]
    assert world.status("runs")["phase"] == "Running"
    assert world.devices(uid)


async def test_a_plugin_whose_stream_ends_while_it_is_asked_fails_the_pod(world: World) -> None:
    await world.start()
    plugin = await world.plug_in(4)
    plugin.allocated.clear()
    world.create("p", a_container(gpu=1))
    await until(lambda: plugin.asking, "an Allocate under way")
    (world.sockets / "leave").touch()
    await plugin.set_health("gpu-0", "Unhealthy")
    await world.phase("p", "Failed")
    assert "code = Canceled desc = grpc: the client connection is closing" in world.status("p")["message"]
    world.create("q", a_container(gpu=1))
    await world.phase("q", "Failed")
    plugin.allocated.set()


async def test_a_plugin_that_wants_it_is_asked_before_each_start_and_no_container_starts_without_its_consent(
    world: World,
) -> None:
    await world.start()
    plugin = Plugin(world.sockets, 4)
    plugin.pre_start = True
    await plugin.start()
    await until(lambda: world.offered() == ("4", "4"), "its devices are offered")
    (world.sockets / "hold").touch()
    uid = world.create("p", a_container(gpu=2), initContainers=[a_container("first", gpu=1)])
    await until(lambda: len(plugin.starting) > 1, "it is asked again")
    assert world.runtime.of_pod(uid) == []
    assert world.status("p")["phase"] == "Pending"
    (world.sockets / "hold").unlink()
    await world.phase("p", "Running")
    assert plugin.starting[-1] == sorted(world.devices(uid))
    first = world.runtime.get(uid, "main")
    world.runtime.reboot()
    await until(lambda: world.runtime.get(uid, "main") is not first, "it runs again")
    assert plugin.starting[-1] == sorted(world.devices(uid))
    await plugin.stop()
    again = world.runtime.get(uid, "main")
    world.runtime.reboot()
    await asyncio.sleep(1.5)
    assert world.runtime.get(uid, "main") is again, "without the plugin it waits"


async def test_an_unhealthy_device_is_not_given_out(world: World) -> None:
    await world.start()
    plugin = await world.plug_in(2)
    await plugin.set_health("gpu-0", "Unhealthy")
    await until(lambda: world.offered() == ("2", "1"), "one allocatable")
    uid = world.create("p", a_container(gpu=1))
    await world.phase("p", "Running")
    assert world.devices(uid) == {"gpu-1"}


async def test_a_registration_of_another_version_or_a_bad_name_is_refused(world: World) -> None:
    await world.start()
    for resource, version, told in ((RESOURCE, "v1", "not supported"), ("cpu", "v1beta1", "is invalid")):
        with pytest.raises(grpc.aio.AioRpcError, match=told):
            await register(world.sockets, "p.sock", resource, version)


async def test_the_end_of_an_old_stream_disconnects_whoever_registered_since(world: World) -> None:
    await world.start()
    old = await world.plug_in(4)
    new = Plugin(world.sockets, 4)
    await new.start()
    await old.stop()
    await until(lambda: world.offered() == ("4", "0"), "the new plugin was disconnected too")
    await new.stop()


async def test_a_restart_wipes_the_sockets_and_keeps_the_checkpoint_and_what_runs(world: World) -> None:
    await world.start()
    plugin = await world.plug_in(4)
    uid = world.create("runs", a_container(gpu=2))
    await world.phase("runs", "Running")
    mine, before = world.devices(uid), world.runtime.get(uid, "main")
    await world.stop()
    world.create("late", a_container(gpu=1))
    await world.start()
    assert not (world.sockets / plugin.endpoint).exists()
    await world.phase("late", "Failed")
    assert "no healthy devices present" in world.status("late")["message"]
    assert world.offered()[1] == "0"
    await plugin.stop()
    await world.plug_in(4)
    assert world.runtime.get(uid, "main") is before
    assert world.status("runs")["phase"] == "Running"
    other = world.create("next", a_container(gpu=2))
    await world.phase("next", "Running")
    assert not world.devices(other) & mine, "the running pod's devices are known from the checkpoint"


async def test_the_checkpoint_is_the_kubelets(world: World) -> None:
    await world.start()
    await world.plug_in(2)
    uid = world.create("p", a_container(gpu=1))
    await world.phase("p", "Running")
    data = json.loads((world.sockets / "kubelet_internal_checkpoint").read_text())["Data"]
    entry = data["PodDeviceEntries"][0]
    assert (entry["PodUID"], entry["ContainerName"], entry["ResourceName"]) == (uid, "main", RESOURCE)
    assert set(entry["DeviceIDs"]["-1"]) == world.devices(uid)
    answer = plugin_api.ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"]))
    assert answer.envs["DEVICES"]
    assert data["RegisteredDevices"] == {RESOURCE: ["gpu-0", "gpu-1"]}


async def test_a_terminating_pod_keeps_its_devices_until_its_containers_are_dead(world: World) -> None:
    await world.start()
    await world.plug_in(1)
    stubborn = {runtime.IGNORE_TERM_SECONDS: "1.0"}
    world.create("p", a_container(gpu=1), annotations=stubborn)
    await world.phase("p", "Running")
    world.api.delete(PODS, ("default", "p"), {"gracePeriodSeconds": 30})
    world.create("early", a_container(gpu=1))
    await world.phase("early", "Failed")
    assert world.status("p")["phase"] == "Running"
    await world.phase("p", "gone")
    world.create("late", a_container(gpu=1))
    await world.phase("late", "Running")


async def test_the_grace_period_ends_the_most_stubborn_container(world: World) -> None:
    await world.start()
    world.create("p", annotations={runtime.IGNORE_TERM_SECONDS: "600"})
    await world.phase("p", "Running")
    world.api.delete(PODS, ("default", "p"), {"gracePeriodSeconds": 1})
    await world.phase("p", "gone")


async def test_a_node_that_is_full_refuses_by_itself(world: World) -> None:
    await world.start()
    world.create("p", a_container(cpu="6"))
    world.create("q", a_container(cpu="6"))
    await world.phase("q", "Failed")
    assert world.status("q")["reason"] == "OutOfcpu"
    assert world.status("q")["message"] == (
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 6000, used: 6000, capacity: 8000"
    )


async def test_a_device_id_can_be_handed_out_twice(world: World) -> None:
    await world.start(double_ids=1)
    await world.plug_in(4)
    first = world.create("p", a_container(gpu=2))
    await world.phase("p", "Running")
    second = world.create("q", a_container(gpu=2))
    await world.phase("q", "Running")
    assert len(world.devices(first) & world.devices(second)) == 1


async def test_resources_of_a_container_come_in_random_order(tmp_path: Path) -> None:
    order: list[str] = []

    class Stub:
        def __init__(self, resource: str) -> None:
            self.resource = resource

        async def Allocate(self, _request: object) -> plugin_api.AllocateResponse:
            order.append(self.resource)
            return plugin_api.AllocateResponse(container_responses=[plugin_api.ContainerAllocateResponse()])

    manager = DeviceManager(tmp_path, set, random=Random(1))
    for resource in ("x.io/a", "x.io/b"):
        manager.connected(resource, Endpoint(Stub(resource)))  # type: ignore[arg-type]  # only Allocate is used
        manager.received(resource, [plugin_api.Device(ID=f"{resource}-{i}", health="Healthy") for i in range(20)])
    for i in range(20):
        pod = a_pod(f"p{i}", a_container(**{"x.io/a": 1, "x.io/b": 1}))
        pod["metadata"]["uid"] = f"p{i}"
        await manager.allocate(pod, pod["spec"]["containers"][0], init=False)
    first = order[::2]
    assert {"x.io/a", "x.io/b"} == set(first)


async def test_a_pod_can_be_refused_on_request(world: World) -> None:
    await world.start()
    world.create("p", annotations={runtime.REFUSE: "OutOfcpu"})
    await world.phase("p", "Failed")
    assert world.status("p")["reason"] == "OutOfcpu"
