"""gpushare's own HTTP protocol, answered from our books, for scheduler configurations and scripts made for it.

Texts and shapes are gpushare's: both node forms in an answer, a reason per node, bind errors as HTTP 500, `id` and the
numbers of inspect in its memory units. Source: AliyunContainerService/gpushare-scheduler-extender, pkg/routes,
pkg/scheduler.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from extender.engine.cycle.engine import Engine
from extender.server.binds import Gone
from extender.server.desk import Desk, Pieces, Refusal, Traffic
from extender.server.gate import Gate
from extender.server.lists import items
from extender.server.pages import JSON, TEXT, Page, Pages, Request, loopback_only
from extender.server.verbs import Answer, Patient, Verbs, answer, at_once
from extender.wire import shapes

PREFIX = "/gpushare-scheduler"
VERSION = "0.1.0"
"""Of the protocol, as gpushare answers it."""
NO_ROOM = "Insufficient GPU Memory in one device"


def not_shared(node: str) -> str:
    """gpushare's sentence for a node that has no GPUs to share."""
    return f"The node {node} is not for GPU share, need skip"


class GpuShare:
    """gpushare's filter and bind on our engine."""

    def __init__(self, verbs: Verbs, engine: Engine) -> None:
        self._verbs, self._engine = verbs, engine

    @property
    def handlers(self) -> Mapping[str, Patient]:
        """By path."""
        return {f"{PREFIX}/filter": at_once(self.filter), f"{PREFIX}/bind": self.bind}

    async def filter(self, body: bytes) -> Answer:
        asked = shapes.args(body)
        verdict = await self._verbs.verdict(asked)
        candidates = asked.candidates()
        failed = {node: not_shared(node) for node in candidates if not self._shares(node) and node not in verdict.nodes}
        if not verdict.nodes:  # with some left, a node that is missing may only be a lesser choice
            failed |= {node: NO_ROOM for node in candidates if node not in failed}
        objects = asked.objects()
        kept = shapes.NodeList(tuple(objects[name] for name in verdict.nodes)) if asked.nodes is not None else None
        return answer(shapes.FilterResult(nodes=kept, node_names=verdict.nodes, failed_nodes=failed))

    def _shares(self, name: str) -> bool:
        node = self._engine.nodes.get(name)
        return node is not None and node.books is not None

    async def bind(self, body: bytes, gone: Gone) -> Answer:
        error = await self._verbs.bound(body, gone)
        return answer(shapes.BindingResult(error), 500 if error else 200)


def pages(engine: Engine, gate: Gate, traffic: Traffic) -> Pages:
    """gpushare's inspect and version; on loopback, as they show tenants' pods."""
    desk = Desk(traffic, 2, "too many questions at once: try again")

    def find(request: Request) -> Page | None:
        match request.path.removeprefix(PREFIX).split("/")[1:]:
            case ["inspect"]:
                return Page(desk, JSON, request.path, lambda: _all(engine))
            case ["inspect", name]:
                return Page(desk, JSON, request.path, lambda: _one(engine, name))
            case ["version"]:
                return Page(desk, TEXT, request.path, lambda: iter([VERSION.encode()]))
        return None

    async def guard(request: Request) -> None:
        await loopback_only(request)
        if not request.path.endswith("/version") and not await gate.passed():
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, gate.why)

    return Pages(find, guard)


def _all(engine: Engine) -> Pieces:
    yield b'{"nodes":['
    yield from items(sorted(engine.nodes), lambda name: _node(engine, name))
    yield b"]}"


def _one(engine: Engine, name: str) -> Pieces:
    found = _node(engine, name)
    lost = {"nodes": [], "error": f'node "{name}" not found'}
    yield msgspec.json.encode(lost if found is None else {"nodes": [found]})


def _node(engine: Engine, name: str) -> dict[str, Any] | None:
    """One node, as gpushare's inspect tells it; None if it has no GPUs to share."""
    node = engine.nodes.get(name)
    if node is None or node.books is None:
        return None
    held: dict[str, list[dict[str, Any]]] = {uuid: [] for uuid in node.books.gpus}
    for uid, entry in node.books.entries.items():
        pod = engine.pods.get(uid)
        if pod is None:
            continue
        for uuid, demand in entry.charges.items():
            told = {"name": pod.ref.name, "namespace": pod.ref.namespace, "usedGPU": demand.mem}
            held.setdefault(uuid, []).append(told)
    devices = [
        {"id": book.gpu.minor, "totalGPU": book.gpu.mem, "usedGPU": book.mem_used, "pods": held[uuid]}
        for uuid, book in node.books.gpus.items()
    ]
    return {
        "name": node.name,
        "totalGPU": sum(device["totalGPU"] for device in devices),
        "usedGPU": sum(device["usedGPU"] for device in devices),
        "devs": devices,
    }
