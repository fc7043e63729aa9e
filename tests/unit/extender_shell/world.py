"""A real extender over HTTP between a real API server (the embedded one) and a test that plays kube-scheduler."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
import msgspec
from aiohttp import web

from extender.cluster.act import Actor
from extender.cluster.leadership import Permission
from extender.faults import Faults
from extender.server.run import Extender
from extender.settings import Address, Settings
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.http import ApiServer
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import EVENTS, LEASES, NODES, PODS
from extender.sim.apiserver.store import Item
from protos.contract import allocation, inventory, names
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from protos.kube.events import Recorder

Json = dict[str, Any]
DEADLINE_S = 60.0
LEASE = ("kube-system", names.SCHEDULER)
ADMIN = Writer("kubectl")
Fault = Callable[[web.BaseRequest], Awaitable[web.StreamResponse | None]]


def waiting(actor: Actor) -> int:
    """Effects that wait to be carried out."""
    return len(actor._acts._effects) + len(actor._notices._effects)


async def until(true: Callable[[], Any], what: str) -> Any:
    """Poll with a deadline."""
    for _ in range(int(DEADLINE_S / 0.02)):
        found = true()
        if found:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"did not happen: {what}")


class FaultyServer(ApiServer):
    """The embedded API server; `fault` may answer a request in its place. Writes are remembered, except of Leases."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.writes: list[tuple[str, str]] = []
        self.fault: Fault | None = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "GET" and "/leases" not in request.path:
            self.writes.append((request.method, request.path))
        answered = await self.fault(request) if self.fault else None
        return answered or await super()._handle(request)

    async def carry_out(self, request: web.BaseRequest) -> web.StreamResponse:
        """What the server would do without a fault."""
        return await super()._handle(request)


@dataclass
class World:
    """One cluster with one extender in front of it."""

    api: Api
    server: FaultyServer
    extender: Extender
    session: aiohttp.ClientSession
    verbs: str = ""
    status: str = ""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    running: asyncio.Task[None] | None = None

    async def ask(self, path: str, body: Any) -> tuple[int, Any]:
        """POST as kube-scheduler does; status, and the answer (JSON read, text as it is)."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        async with self.session.post(self.verbs + path, data=data) as answer:
            return answer.status, _read(await answer.read())

    async def get(self, path: str, base: str = "") -> tuple[int, Any]:
        async with self.session.get((base or self.status) + path) as answer:
            return answer.status, _read(await answer.read())

    async def filter(self, pod: Json, nodes: list[str]) -> Json:
        status, answer = await self.ask("/scheduler/filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        assert status == 200, answer
        assert isinstance(answer, dict)
        return answer

    async def bind(self, pod: Json, node: str) -> str:
        status, answer = await self.ask("/scheduler/bind", binding(pod, node))
        assert status == 200, answer
        return str(answer.get("Error", ""))

    def pod(self, name: str) -> Json:
        return read_pod(self.api, name)

    def bindings(self, name: str) -> int:
        return sum(path.endswith(f"/pods/{name}/binding") for _, path in self.server.writes)

    async def end(self) -> None:
        """Stop the extender; an error that broke it is the test's, unless the test took it by `broken`."""
        self.stop.set()
        if self.running is not None:
            await asyncio.wait_for(self.running, DEADLINE_S)

    async def broken(self) -> BaseException:
        """What broke the extender."""
        assert self.running is not None
        running, self.running = self.running, None
        await asyncio.wait([running], timeout=DEADLINE_S)
        error = running.exception()
        assert error is not None
        return error

    async def ready(self) -> None:
        await until(lambda: not self.extender.health.not_ready, "ready")
        assert await self.get("/readyz") == (200, "ok")


def _read(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body.decode()


def whole(item: Item) -> Json:
    return dict(item.obj)


@asynccontextmanager
async def world(api: Api | None = None, **settings: Any) -> AsyncIterator[World]:
    """An extender that runs for as long as the test wants it; without a Lease unless told otherwise."""
    server = FaultyServer(api or Api())
    await server.start()
    told = {"leader_election": "none", **settings}
    free = Address("127.0.0.1", 0)
    extender = Extender(Settings(listen=free, status_listen=free, **told), Credentials(server.url))
    verbs, status = (f"http://{port.address}" for port in (extender.ports.verbs, extender.ports.status))
    async with aiohttp.ClientSession() as session:
        made = World(server.api, server, extender, session, verbs, status)
        made.running = asyncio.create_task(extender.run(made.stop))
        try:
            yield made
        finally:
            await made.end()
            await server.stop()


class Acting(NamedTuple):
    """An actor at work on an API server."""

    server: FaultyServer
    actor: Actor
    failed: list[str]


@asynccontextmanager
async def acting() -> AsyncIterator[Acting]:
    """One that works for as long as the test wants it, on a server of its own."""
    server, failed = FaultyServer(Api()), list[str]()
    await server.start()
    async with ApiClient(Credentials(server.url)) as client:
        recorder = Recorder(client, component=names.EXTENDER, instance="test", clock=asyncio.get_running_loop().time)
        actor = Actor(client, Permission(), recorder, failed.append, Faults())
        running = asyncio.create_task(actor.run())
        yield Acting(server, actor, failed)
        running.cancel()
        await asyncio.wait([running])
    await server.stop()


def binding(pod: Json, node: str) -> Json:
    meta = pod["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}


def equal_gpus(node: str, gpus: int, mem: int) -> str:
    """The inventory annotation of a node with equal GPUs."""
    every = tuple(
        inventory.Gpu(index=i, minor=i, uuid=f"GPU-{node}-{i}", mem=mem, mem_mib=mem * 1024, model="T4")
        for i in range(gpus)
    )
    return inventory.encode(inventory.Inventory(v=1, unit_mib=1024, slices_per_gpu=100, gpus=every))


def add_node(api: Api, name: str, gpus: int = 1, mem: int = 16) -> None:
    """A node with equal GPUs that our plugin told of."""
    status = {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}}
    meta = {"name": name, "annotations": {names.GPUS: equal_gpus(name, gpus, mem)}}
    api.create(NODES, "", {"metadata": meta, "status": status}, ADMIN)


def add_pod(
    api: Api,
    name: str,
    mem: int = 4,
    node: str = "",
    annotations: Json | None = None,
    resource: str = names.GPU_MEM,
    **more: object,
) -> Json:
    """A pod that asks memory of a GPU."""
    container = {"name": "main", "image": "x", "resources": {"limits": {resource: str(mem)}}}
    spec: Json = {"schedulerName": names.PROFILE, "containers": [container], **more}
    if node:
        spec["nodeName"] = node
    meta = {"name": name, "namespace": "default", "annotations": annotations or {}}
    return whole(api.create(PODS, "default", {"metadata": meta, "spec": spec}, ADMIN))


def read_pod(api: Api, name: str) -> Json:
    """The pod as the API server has it now."""
    return whole(api.get(PODS, ("default", name)))


def given(pod: Json) -> list[str]:
    """The GPUs that the pod's annotation names."""
    found = allocation.decode(pod["metadata"].get("annotations", {}).get(names.ALLOCATION))
    return sorted(found.uuids()) if found else []


def events(api: Api) -> list[Json]:
    return [item.obj for item in api.store.items(EVENTS)]


def hold_lease(api: Api, holder: str, renewed: int, transitions: int = 0, where: tuple[str, str] = LEASE) -> None:
    """Write a Lease, the scheduler's if not told otherwise, as its holder does; `renewed` numbers the renewals."""
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 15,
        "leaseTransitions": transitions,
        "renewTime": f"2025-01-01T00:{renewed // 60:02}:{renewed % 60:02}.000000Z",
    }
    namespace, name = where
    obj: Json = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    found = api.store.get(LEASES, where)
    if found is None:
        api.create(LEASES, namespace, obj, ADMIN)
        return
    obj["metadata"]["resourceVersion"] = found.obj["metadata"]["resourceVersion"]
    api.update(LEASES, where, obj, ADMIN)
