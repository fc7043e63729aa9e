"""The World of the real cluster."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

import yaml

from protos.contract import names
from tests.cluster.api import ApiError
from tests.cluster.gangshare import Gangshare, get
from tests.scenarios.stories import T4, V100
from tests.scenarios.world import Object, filters, path, without_gate

POLL_S = 0.05
MACHINES = {T4: "t4x4", V100: "dgx1-v100"}
"""What the two nodes pretend to be."""


class RealWorld:
    """Drives Gangshare on a real cluster; implements `tests.scenarios.world.World`."""

    def __init__(self, sharing: Gangshare) -> None:
        self.sharing, self.cluster = sharing, sharing.cluster

    async def create_pod(self, manifest: Object) -> str:
        body = {**manifest, "spec": {"automountServiceAccountToken": False, **manifest["spec"]}}
        made = await asyncio.to_thread(self.cluster.create_pod, body)
        uid: str = made["metadata"]["uid"]
        return uid

    async def delete_pod(self, namespace: str, name: str, grace: int | None = None) -> None:
        query = {} if grace is None else {"gracePeriodSeconds": str(grace)}
        try:
            await asyncio.to_thread(self.cluster.api.delete, f"/api/v1/namespaces/{namespace}/pods/{name}", **query)
        except ApiError as error:
            if error.status != 404:
                raise

    async def pod(self, namespace: str, name: str) -> Object | None:
        try:
            return await asyncio.to_thread(self.cluster.pod, name, namespace)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    async def pods(self) -> list[Object]:
        return await asyncio.to_thread(self.cluster.pods)

    async def events(self, namespace: str, name: str) -> list[Object]:
        return await asyncio.to_thread(self.cluster.events, name, namespace)

    async def create(self, manifest: Object) -> Object:
        metadata = manifest["metadata"]
        where = path(manifest["apiVersion"], manifest["kind"], metadata.get("namespace", "default"))
        return await asyncio.to_thread(self.cluster.api.post, where, manifest)

    async def get(self, api_version: str, kind: str, name: str, namespace: str = "default") -> Object | None:
        try:
            return await asyncio.to_thread(self.cluster.api.get, path(api_version, kind, namespace, name))
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    async def items(self, api_version: str, kind: str, namespace: str = "default") -> list[Object]:
        try:
            return await asyncio.to_thread(self.cluster.api.items, path(api_version, kind, namespace))
        except ApiError as error:
            if error.status != 404:
                raise
            return []

    async def delete(self, api_version: str, kind: str, name: str, namespace: str = "default") -> None:
        where = path(api_version, kind, namespace, name)
        try:
            await asyncio.to_thread(self.cluster.api.delete, where, propagationPolicy="Background")
        except ApiError as error:
            if error.status != 404:
                raise

    async def patch(
        self, api_version: str, kind: str, name: str, body: Object, *, namespace: str = "default", subresource: str = ""
    ) -> None:
        where = path(api_version, kind, namespace, name) + (f"/{subresource}" if subresource else "")
        await asyncio.to_thread(self.cluster.api.patch, where, body)

    async def forget_events(self, *namespaces: str) -> None:
        """No Event of earlier tests is left."""
        for namespace in namespaces:
            await asyncio.to_thread(self.cluster.api.delete, f"/api/v1/namespaces/{namespace}/events")

    async def told(self, namespace: str) -> list[Object]:
        return await asyncio.to_thread(self.cluster.api.items, f"/api/v1/namespaces/{namespace}/events")

    async def books(self) -> Object:
        try:
            return await asyncio.to_thread(self.sharing.pair.inspect)
        except OSError:
            return {}

    async def questions(self) -> int:
        return filters(await asyncio.to_thread(get, self.sharing.pair.status, "/metrics"))

    async def open_gate(self, namespace: str, name: str, gate: str) -> None:
        patch = ["patch", "pod", name, f"--namespace={namespace}", "--patch", json.dumps(without_gate(gate))]
        await asyncio.to_thread(self.cluster.kubectl, *patch)

    async def container_env(self, namespace: str, name: str, container: str) -> dict[str, str]:
        try:
            log = await asyncio.to_thread(self.cluster.pod_log, name, namespace, container=container)
        except ApiError:
            return {}
        return dict(line.split("=", 1) for line in log.splitlines() if "=" in line)

    async def nodes(self) -> list[Object]:
        return await asyncio.to_thread(self.cluster.api.items, "/api/v1/nodes")

    async def stop_extender(self) -> None:
        await asyncio.to_thread(self.sharing.pair.extender.stop)

    async def restart_extender(self, kill: bool = False) -> None:
        extender = self.sharing.pair.extender
        await asyncio.to_thread(extender.kill if kill else extender.stop)
        extender.start()

    async def restart_scheduler(self, kill: bool = False) -> None:
        assert self.sharing.pair.scheduler is not None
        process = self.sharing.pair.scheduler.process
        await asyncio.to_thread(process.kill if kill else process.stop)
        process.start()

    async def restart_kubelet(self, node: str) -> None:
        kubelet = self.cluster.nodes[node].kubelet
        await asyncio.to_thread(kubelet.kill)
        kubelet.start()

    async def restart_plugin(self, node: str, kill: bool = False) -> None:
        plugin = self.sharing.plugins[node]
        await asyncio.to_thread(plugin.kill if kill else plugin.stop)
        plugin.start()

    async def set_gpu_health(self, node: str, index: int, health: str) -> None:
        path = self.sharing.profiles[node]
        profile = yaml.safe_load(path.read_text())
        profile["gpus"][index]["health"] = health
        path.write_text(yaml.safe_dump(profile))

    async def wait(self, holds: Callable[[], Awaitable[object]], timeout: float, what: str) -> None:
        end = time.monotonic() + timeout
        while not await holds():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {timeout:g} s: {what}")
            await asyncio.sleep(POLL_S)


def offered(sharing: Gangshare) -> bool:
    """Whether every node offers GPUs."""
    return all(sharing.offers(node, names.WHOLE_GPU) for node in sharing.plugins)
