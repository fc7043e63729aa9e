"""gpushare's own HTTP protocol, answered from our books, for scheduler configurations and scripts made for it.

Texts and shapes are gpushare's: both node forms in an answer, a reason per node, bind errors as HTTP 500, `id` and the
numbers of inspect in its memory units. Source: AliyunContainerService/gpushare-scheduler-extender, pkg/routes,
pkg/scheduler.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import FastAPI, Response

from extender.engine.books.ledger import NodeState
from extender.engine.engine import Engine
from extender.server.binds import Gone
from extender.server.gate import Gate
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


def add_pages(app: FastAPI, engine: Engine, gate: Gate) -> None:
    """Add gpushare's inspect and version to the application."""

    @app.get(f"{PREFIX}/inspect")
    async def inspect_all() -> Response:
        shared = [node for _, node in sorted(engine.nodes.items()) if node.books is not None]
        return await _page(gate, {"nodes": [node_page(engine, node) for node in shared]})

    @app.get(f"{PREFIX}/inspect/{{name}}")
    async def inspect_one(name: str) -> Response:
        node = engine.nodes.get(name)
        if node is None or node.books is None:
            return await _page(gate, {"nodes": [], "error": f'node "{name}" not found'})
        return await _page(gate, {"nodes": [node_page(engine, node)]})

    @app.get(f"{PREFIX}/version")
    async def version() -> Response:
        return Response(VERSION, media_type="text/plain")


async def _page(gate: Gate, content: dict[str, Any]) -> Response:
    if not await gate.passed():
        return Response(gate.why, 503, media_type="text/plain")
    return Response(msgspec.json.encode(content), media_type="application/json")


def node_page(engine: Engine, node: NodeState) -> dict[str, Any]:
    """One node, as gpushare's inspect tells it."""
    assert node.books is not None
    devices = []
    for uuid, book in node.books.gpus.items():
        held = [
            {"name": pod.ref.name, "namespace": pod.ref.namespace, "usedGPU": entry.charges[uuid].mem}
            for uid, entry in node.books.entries.items()
            if uuid in entry.charges and (pod := engine.pods.get(uid)) is not None
        ]
        devices.append({"id": book.gpu.minor, "totalGPU": book.gpu.mem, "usedGPU": book.mem_used, "pods": held})
    return {
        "name": node.name,
        "totalGPU": sum(device["totalGPU"] for device in devices),
        "usedGPU": sum(device["usedGPU"] for device in devices),
        "devs": devices,
    }
