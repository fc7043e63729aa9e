"""The World of the embedded cluster."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence

import aiohttp
import msgspec

from extender.cli.scheduler_config import Layout, Options, render
from extender.sim.apiserver.errors import ApiError
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.patch import STRATEGIC
from extender.sim.apiserver.resources import EVENTS, PODS
from extender.sim.cluster import EmbeddedCluster
from extender.sim.kubelet.kubelet import Settings
from extender.sim.kubelet.status import NodeSpec
from extender.sim.spec import ClusterSpec, ExtenderPlace, PluginPlace, gangshare_extender, gangshare_plugin
from gangfilter import dialects
from protos.contract import codec, inventory, names, objects
from protos.contract.inventory import Gpu, Inventory
from tests.scenarios.world import Object, filters, without_gate

_POLL_SECONDS = 0.02


def a_cluster(
    *nodes: NodeSpec,
    kubelet: Settings | None = None,
    also: Sequence[str] = (),
    job_backoff_seconds: float = 10.0,
    gated: bool = False,
    layout: Layout = "own",
    extender_args: Sequence[str] = (),
    plugin_command: Callable[[PluginPlace], Sequence[str]] = gangshare_plugin,
) -> EmbeddedCluster:
    """An embedded cluster of these nodes with the real extender and plugin, and the scheduler configuration that the
    product prints for this layout; in layout own the scheduler answers to the names ``also`` too. ``gated``: pods of
    groups are born with our scheduling gate."""

    def printed(url_prefix: str) -> str:
        options = Options(extender_url=url_prefix.removesuffix("/scheduler"), profiles=(names.PROFILE, *also))
        return render(layout, options)

    def extender(place: ExtenderPlace) -> list[str]:
        beside = (
            ["--lease-name=kube-scheduler", "--bind-timeout=30", "--max-gang-size=500"] if layout == "shared" else []
        )
        return [*gangshare_extender(place), *beside, *extender_args]

    settings = kubelet or Settings(status_seconds=1.0)
    spec = ClusterSpec(
        nodes=nodes,
        scheduler_config=printed,
        extender_command=extender,
        plugin_command=plugin_command,
        kubelet=settings,
        job_backoff_seconds=job_backoff_seconds,
    )
    cluster = EmbeddedCluster(spec)
    if gated:
        cluster.api.admit = lambda pod: with_gate(pod, (names.PROFILE, *also))
    return cluster


def with_gate(pod: Object, schedulers: Sequence[str]) -> Object:
    """The new pod as our admission policy leaves it."""
    if not dialects.born_gated(objects.decode_pod(msgspec.json.encode(pod)), schedulers):
        return pod
    spec = pod["spec"]
    return {**pod, "spec": {**spec, "schedulingGates": [*spec.get("schedulingGates", ()), {"name": names.PLAN_GATE}]}}


def a_bare_node(name: str, gpus: int = 4, mem: int = 14) -> NodeSpec:
    """A node with so many GPUs of ``mem`` units that no plugin serves: its containers see none of them."""
    cards = tuple(Gpu(index=i, uuid=f"GPU-{name}-{i}", mem=mem, mem_mib=mem * 1024, model="Bare") for i in range(gpus))
    told = Inventory(v=codec.VERSION, unit_mib=names.DEFAULT_UNIT_MIB, slices_per_gpu=100, gpus=cards, links=())
    offered = {names.GPU_MEM: gpus * mem, names.GPU_SLICE: gpus * 100, names.WHOLE_GPU: gpus}
    extended = {resource: str(amount) for resource, amount in offered.items()}
    return NodeSpec(name=name, annotations={names.GPUS: inventory.encode(told)}, extended=extended)


class EmbeddedWorld:
    """Drives a running ``EmbeddedCluster``; implements ``tests.scenarios.world.World``."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    async def create_pod(self, manifest: Object) -> str:
        uid: str = self.cluster.create_pod(manifest)["metadata"]["uid"]
        return uid

    async def delete_pod(self, namespace: str, name: str, grace: int | None = None) -> None:
        self.cluster.delete_pod(namespace, name, grace)

    async def pod(self, namespace: str, name: str) -> Object | None:
        return self.cluster.pod(namespace, name)

    async def pods(self) -> list[Object]:
        return self.cluster.pods()

    async def events(self, namespace: str, name: str) -> list[Object]:
        return self.cluster.events(namespace, name)

    async def create(self, manifest: Object) -> Object:
        return self.cluster.create(manifest)

    async def define(self, *definitions: Object) -> None:
        """Create these CustomResourceDefinitions; then their kinds are served."""
        for each in definitions:
            await self.create(each)

        async def served() -> bool:
            wanted = {each["metadata"]["name"] for each in definitions}
            found = await self.items(definitions[0]["apiVersion"], "CustomResourceDefinition")
            return wanted <= {each["metadata"]["name"] for each in found if each.get("status")}

        await self.wait(served, 10, "the kinds are served")

    async def get(self, api_version: str, kind: str, name: str, namespace: str = "default") -> Object | None:
        return self.cluster.get(api_version, kind, namespace, name)

    async def items(self, api_version: str, kind: str, namespace: str = "default") -> list[Object]:
        return self.cluster.items(api_version, kind, namespace)

    async def delete(self, api_version: str, kind: str, name: str, namespace: str = "default") -> None:
        if await self.get(api_version, kind, name, namespace):
            self.cluster.delete(api_version, kind, namespace, name)

    async def patch(
        self, api_version: str, kind: str, name: str, body: Object, *, namespace: str = "default", subresource: str = ""
    ) -> None:
        self.cluster.patch(api_version, kind, namespace, name, body, subresource)

    async def told(self, namespace: str) -> list[Object]:
        return [item.obj for item in self.cluster.api.store.items(EVENTS, namespace)]

    async def books(self) -> Object:
        try:
            url = f"http://{self.cluster.place.status_listen}/inspect"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                found: Object = await answer.json() if answer.status == 200 else {}
        except aiohttp.ClientError:
            return {}
        return found

    async def knows_all_gpus(self) -> bool:
        """Whether the extender has read the inventory of each node that has a plugin."""
        books = await self.books()
        known = {node["name"] for node in books.get("nodes", ()) if node["gpus"]}
        return known >= {spec.name for spec in self.cluster.spec.nodes if self.cluster.node(spec.name).plugin}

    async def questions(self) -> int:
        url = f"http://{self.cluster.place.status_listen}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return filters(await answer.text())

    async def open_gate(self, namespace: str, name: str, gate: str) -> None:
        self.cluster.api.patch(PODS, (namespace, name), without_gate(gate), STRATEGIC, Writer("owner"))

    async def container_env(self, namespace: str, name: str, container: str) -> dict[str, str]:
        pod = self.cluster.pod(namespace, name)
        log = self.cluster.api.log_of(pod, container) if pod else ""
        return dict(line.split("=", 1) for line in log.splitlines())

    async def nodes(self) -> list[Object]:
        return self.cluster.nodes()

    async def stop_extender(self) -> None:
        await self.cluster.extender.stop()

    def kill_extender_at(self, subresource: str, count: int) -> None:
        """The extender is killed while it writes the `count`th of these, which does not happen any more."""
        seen: list[str] = []

        def refuse(method: str, path: str) -> ApiError | None:
            if method != "POST" or not path.endswith(f"/{subresource}"):
                return None
            seen.append(path)
            if len(seen) == count:
                self.cluster.extender.signal(signal.SIGKILL)
            return None if len(seen) < count else ApiError(503, "ServiceUnavailable", "gone")

        self.cluster.server.refuse = refuse

    async def extender_killed(self) -> None:
        """Wait for that; then nothing is refused any more."""

        async def killed() -> bool:
            return not self.cluster.extender.running

        await self.wait(killed, 60, "the extender is killed")
        self.cluster.server.refuse = lambda _method, _path: None

    async def restart_extender(self, kill: bool = False) -> None:
        await self.cluster.extender.restart(kill)

    async def restart_scheduler(self, kill: bool = False) -> None:
        await self.cluster.restart_scheduler(kill)

    async def restart_kubelet(self, node: str) -> None:
        await self.cluster.node(node).restart_kubelet()

    async def restart_plugin(self, node: str, kill: bool = False) -> None:
        plugin = self.cluster.node(node).plugin
        assert plugin, f"node {node} has no GPU profile, so no plugin runs there"
        await plugin.restart(kill)

    async def set_gpu_health(self, node: str, index: int, health: str) -> None:
        self.cluster.node(node).set_gpu_health(index, health)

    async def wait(self, holds: Callable[[], Awaitable[object]], timeout: float, what: str) -> None:
        end = time.monotonic() + timeout
        while not await holds():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {timeout:g} s: {what}")
            self.cluster.check()
            await asyncio.sleep(_POLL_SECONDS)
