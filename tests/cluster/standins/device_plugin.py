"""Another vendor's device plugin, run on a node: one resource with the device IDs that it is told.

A container gets its IDs in NVIDIA_VISIBLE_DEVICES, as NVIDIA's own plugin answers, or the variables of `--env` instead.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from protos.contract import names
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2_grpc as rpc

FOLDER = Path(names.DEVICE_PLUGIN_DIR)


class Plugin(rpc.DevicePluginServicer):
    """Serves devices that are always well."""

    def __init__(self, devices: list[str], env: dict[str, str]) -> None:
        self._devices, self._env = devices, env

    def GetDevicePluginOptions(self, _request: api.Empty, _context: grpc.ServicerContext) -> api.DevicePluginOptions:
        return api.DevicePluginOptions()

    def ListAndWatch(self, _request: api.Empty, _context: grpc.ServicerContext) -> Iterator[api.ListAndWatchResponse]:
        yield api.ListAndWatchResponse(devices=[api.Device(ID=name, health="Healthy") for name in self._devices])
        print("followed", flush=True)
        threading.Event().wait()

    def Allocate(self, request: api.AllocateRequest, _context: grpc.ServicerContext) -> api.AllocateResponse:
        answers = []
        for asked in request.container_requests:
            env = self._env or {names.VISIBLE_DEVICES: ",".join(asked.devices_ids)}
            answers.append(api.ContainerAllocateResponse(envs=env))
        return api.AllocateResponse(container_responses=answers)

    def GetPreferredAllocation(
        self, _request: api.PreferredAllocationRequest, _context: grpc.ServicerContext
    ) -> api.PreferredAllocationResponse:
        return api.PreferredAllocationResponse()

    def PreStartContainer(
        self, _request: api.PreStartContainerRequest, _context: grpc.ServicerContext
    ) -> api.PreStartContainerResponse:
        return api.PreStartContainerResponse()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resource", required=True)
    parser.add_argument("--devices", required=True, help="IDs divided by commas")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    told = parser.parse_args()
    socket = FOLDER / f"standin-{told.resource.replace('/', '-')}.sock"
    socket.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(8))
    env = dict(pair.split("=", 1) for pair in told.env)
    rpc.add_DevicePluginServicer_to_server(Plugin(told.devices.split(","), env), server)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix:{FOLDER / names.KUBELET_SOCKET}", options=options) as kubelet:
        request = api.RegisterRequest(version="v1beta1", endpoint=socket.name, resource_name=told.resource)
        rpc.RegistrationStub(kubelet).Register(request, timeout=10)
    signal.pause()


if __name__ == "__main__":
    main()
