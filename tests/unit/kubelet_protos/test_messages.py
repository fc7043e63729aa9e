"""The kubelet's messages: field numbers on the wire, and a conversation over a real unix socket."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2_grpc as rpc
from protos.kubelet.podresources.v1 import podresources_v1_pb2 as podresources


def field(number: int, value: bytes | str) -> bytes:
    """A length-delimited field of the protobuf wire format, for numbers and lengths below 16 and 128."""
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(data)]) + data


def varint(number: int, value: int) -> bytes:
    return bytes([number << 3, value])


TOPOLOGY = field(3, field(1, varint(1, 1)))

GOLDEN: list[tuple[Message, bytes]] = [
    (
        api.RegisterRequest(
            version="v1beta1",
            endpoint="a.sock",
            resource_name="gangshare.io/gpu-mem",
            options=api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True),
        ),
        field(1, "v1beta1")
        + field(2, "a.sock")
        + field(3, "gangshare.io/gpu-mem")
        + field(4, varint(1, 1) + varint(2, 1)),
    ),
    (
        api.ListAndWatchResponse(
            devices=[
                api.Device(ID="a", health="Healthy", topology=api.TopologyInfo(nodes=[api.NUMANode(ID=1)])),
                api.Device(ID="b", health="Unhealthy"),
            ]
        ),
        field(1, field(1, "a") + field(2, "Healthy") + TOPOLOGY) + field(1, field(1, "b") + field(2, "Unhealthy")),
    ),
    (
        api.PreferredAllocationRequest(
            container_requests=[
                api.ContainerPreferredAllocationRequest(
                    available_deviceIDs=["a", "b"], must_include_deviceIDs=["a"], allocation_size=2
                )
            ]
        ),
        field(1, field(1, "a") + field(1, "b") + field(2, "a") + varint(3, 2)),
    ),
    (
        api.PreferredAllocationResponse(
            container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=["a", "b"])]
        ),
        field(1, field(1, "a") + field(1, "b")),
    ),
    (
        api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=["a", "b"])]),
        field(1, field(1, "a") + field(1, "b")),
    ),
    (
        api.AllocateResponse(
            container_responses=[
                api.ContainerAllocateResponse(
                    envs={"K": "v"},
                    mounts=[api.Mount(container_path="/c", host_path="/h", read_only=True)],
                    devices=[api.DeviceSpec(container_path="/c", host_path="/h", permissions="rw")],
                    annotations={"a": "b"},
                    cdi_devices=[api.CDIDevice(name="v/c=n")],
                )
            ]
        ),
        field(
            1,
            field(1, field(1, "K") + field(2, "v"))
            + field(2, field(1, "/c") + field(2, "/h") + varint(3, 1))
            + field(3, field(1, "/c") + field(2, "/h") + field(3, "rw"))
            + field(4, field(1, "a") + field(2, "b"))
            + field(5, field(1, "v/c=n")),
        ),
    ),
    (api.PreStartContainerRequest(devices_ids=["a"]), field(1, "a")),
    (podresources.GetPodResourcesRequest(pod_name="p", pod_namespace="n"), field(1, "p") + field(2, "n")),
    (
        podresources.ListPodResourcesResponse(
            pod_resources=[
                podresources.PodResources(
                    name="p",
                    namespace="n",
                    containers=[
                        podresources.ContainerResources(
                            name="c",
                            devices=[podresources.ContainerDevices(resource_name="r", device_ids=["a", "b"])],
                            cpu_ids=[1, 2],
                            memory=[podresources.ContainerMemory(memory_type="memory", size=7)],
                            dynamic_resources=[podresources.DynamicResource(claim_name="k", claim_namespace="n")],
                        )
                    ],
                )
            ]
        ),
        field(
            1,
            field(1, "p")
            + field(2, "n")
            + field(
                3,
                field(1, "c")
                + field(2, field(1, "r") + field(2, "a") + field(2, "b"))
                + field(3, b"\x01\x02")
                + field(4, field(1, "memory") + varint(2, 7))
                + field(5, field(2, "k") + field(3, "n")),
            ),
        ),
    ),
    (
        podresources.DynamicResource(
            claim_resources=[
                podresources.ClaimResource(
                    cdi_devices=[podresources.CDIDevice(name="v/c=n")],
                    driver_name="d",
                    pool_name="p",
                    device_name="g",
                    share_id="s",
                )
            ]
        ),
        field(4, field(1, field(1, "v/c=n")) + field(2, "d") + field(3, "p") + field(4, "g") + field(5, "s")),
    ),
    (
        podresources.AllocatableResourcesResponse(
            devices=[
                podresources.ContainerDevices(
                    resource_name="r",
                    device_ids=["a"],
                    topology=podresources.TopologyInfo(nodes=[podresources.NUMANode(ID=1)]),
                )
            ],
            cpu_ids=[3],
            memory=[podresources.ContainerMemory(memory_type="memory", size=7)],
        ),
        field(1, field(1, "r") + field(2, "a") + TOPOLOGY)
        + field(2, b"\x03")
        + field(3, field(1, "memory") + varint(2, 7)),
    ),
]


@pytest.mark.parametrize(("message", "wire"), GOLDEN, ids=lambda part: type(part).__name__)
def test_a_message_has_the_field_numbers_of_the_kubelet(message: Message, wire: bytes) -> None:
    assert message.SerializeToString(deterministic=True) == wire
    assert type(message).FromString(wire) == message


class Registry(rpc.RegistrationServicer):
    def __init__(self) -> None:
        self.seen: list[api.RegisterRequest] = []

    async def Register(self, request: api.RegisterRequest, context: object) -> api.Empty:
        self.seen.append(request)
        return api.Empty()


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[tuple[Registry, "rpc.RegistrationAsyncStub"]]:
    servicer, server = Registry(), grpc.aio.server()
    rpc.add_RegistrationServicer_to_server(servicer, server)
    address = f"unix://{tmp_path}/kubelet.sock"
    server.add_insecure_port(address)
    await server.start()
    async with grpc.aio.insecure_channel(address, options=[("grpc.default_authority", "localhost")]) as channel:
        yield servicer, rpc.RegistrationStub(channel)
    await server.stop(None)


async def test_a_plugin_registers_over_a_unix_socket(registry: tuple[Registry, "rpc.RegistrationAsyncStub"]) -> None:
    servicer, stub = registry
    request = api.RegisterRequest(version="v1beta1", endpoint="a.sock", resource_name="gangshare.io/gpu-mem")
    assert await stub.Register(request) == api.Empty()
    assert servicer.seen == [request]


def test_services_and_methods_have_the_names_of_the_kubelet() -> None:
    names = {
        service.full_name: [method.name for method in service.methods]
        for file in (api.DESCRIPTOR, podresources.DESCRIPTOR)
        for service in file.services_by_name.values()
    }
    assert names == {
        "v1beta1.Registration": ["Register"],
        "v1beta1.DevicePlugin": [
            "GetDevicePluginOptions",
            "ListAndWatch",
            "GetPreferredAllocation",
            "Allocate",
            "PreStartContainer",
        ],
        "v1.PodResourcesLister": ["List", "GetAllocatableResources", "Get"],
    }
