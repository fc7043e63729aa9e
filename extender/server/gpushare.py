"""gpushare's own HTTP protocol, answered from our engine, for scheduler configurations and scripts made for gpushare.

Texts and shapes are gpushare's: both node forms in an answer, a reason for each node, bind errors as HTTP 500, `id` and
the numbers of inspect in its memory units. Source: AliyunContainerService/gpushare-scheduler-extender, pkg/routes,
pkg/scheduler.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from extender.engine.cycle.engine import Engine
from extender.server import inspect
from extender.server.desk import Desk, Pieces, Refusal, Traffic, json_object
from extender.server.direct import Answer, Gone
from extender.server.gate import Gate
from extender.server.pages import JSON, TEXT, Page, Pages, Request, loopback_only
from extender.server.verbs import LateHandler, Verbs, answer, at_once
from extender.wire import shapes

PREFIX = "/gpushare-scheduler"
VERSION = "0.1.0"
"""gpushare's version of the protocol."""
NO_ROOM = "Insufficient GPU Memory in one device"


class GpuShare:
    """gpushare's filter and bind."""

    def __init__(self, verbs: Verbs, engine: Engine) -> None:
        self._verbs, self._engine = verbs, engine

    @property
    def handlers(self) -> Mapping[str, LateHandler]:
        """By path."""
        return {f"{PREFIX}/filter": at_once(self.filter), f"{PREFIX}/bind": self.bind}

    async def filter(self, body: bytes) -> Answer:
        asked = shapes.args(body)
        verdict = await self._verbs.verdict(asked)
        candidates = asked.candidates()
        unshared = [node for node in candidates if not self._shares(node) and node not in verdict.nodes]
        failed = {node: f"The node {node} is not for GPU share, need skip" for node in unshared}
        if not verdict.nodes:  # otherwise a node may be missing only because others are better
            failed |= {node: NO_ROOM for node in candidates if node not in failed}
        kept = shapes.kept(asked, verdict.nodes)
        return answer(msgspec.structs.replace(kept, node_names=verdict.nodes, failed_nodes=failed))

    def _shares(self, name: str) -> bool:
        node = self._engine.nodes.get(name)
        return node is not None and node.books is not None

    async def bind(self, body: bytes, gone: Gone) -> Answer:
        error = await self._verbs.bound(body, gone)
        return answer(shapes.BindingResult(error), 500 if error else 200)


def pages(engine: Engine, gate: Gate, traffic: Traffic) -> Pages:
    """gpushare's inspect and version. They show pods of tenants, so only callers on loopback get them."""
    desk = Desk(traffic, 2)

    async def complete(request: Request) -> None:
        await loopback_only(request)
        if not await gate.passed():
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, gate.why)

    def find(request: Request) -> Page | None:
        match request.path.removeprefix(PREFIX).split("/")[1:]:
            case ["inspect"]:
                return Page(desk, JSON, request.path, lambda: _all(engine), complete)
            case ["inspect", name]:
                return Page(desk, JSON, request.path, lambda: _one(engine, name), complete)
            case ["version"]:
                return Page(desk, TEXT, request.path, lambda: iter([VERSION.encode()]), loopback_only)
        return None

    return Pages(find)


def _all(engine: Engine) -> Pieces:
    yield from json_object({}, {"nodes": (_node(engine, name) for name in sorted(engine.nodes))})


def _one(engine: Engine, name: str) -> Pieces:
    node = _node(engine, name)
    missing = {"nodes": [], "error": f'node "{name}" not found'}
    yield msgspec.json.encode(missing if node is None else {"nodes": [node]})


def _node(engine: Engine, name: str) -> dict[str, Any] | None:
    """One node as gpushare's inspect shows it; None if it has no GPUs to share."""
    node = engine.nodes.get(name)
    if node is None or node.books is None:
        return None
    holders = inspect.pods_by_gpu(engine, node.books)
    devices: list[dict[str, Any]] = []
    for uuid, book in node.books.gpus.items():
        known = (each for each in holders.get(uuid, ()) if each.uid in engine.pods)
        pods = [{"name": each.name, "namespace": each.namespace, "usedGPU": each.mem} for each in known]
        devices.append({"id": book.gpu.minor, "totalGPU": book.gpu.mem, "usedGPU": book.mem_used, "pods": pods})
    return {
        "name": node.name,
        "totalGPU": sum(device["totalGPU"] for device in devices),
        "usedGPU": sum(device["usedGPU"] for device in devices),
        "devs": devices,
    }
