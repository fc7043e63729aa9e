"""Fixtures: an API with its server, and an HTTP client that speaks JSON to it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from extender.sim.apiserver.api import Api
from extender.sim.apiserver.http import ApiServer
from extender.sim.apiserver.store import Store

PODS = "/api/v1/namespaces/default/pods"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


class Client:
    """Answers (HTTP code, decoded body)."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", agent: str = "tester/1.0",
    ) -> tuple[int, Any]:  # fmt: skip
        headers = {"Content-Type": kind, "User-Agent": agent}
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, path, data=data, headers=headers) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if "json" in answer.content_type else text

    async def get(self, path: str) -> tuple[int, Any]:
        return await self.call("GET", path)

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        return await self.call("POST", path, body)

    async def put(self, path: str, body: Any) -> tuple[int, Any]:
        return await self.call("PUT", path, body)

    async def patch(self, path: str, body: Any, kind: str = MERGE, agent: str = "tester/1.0") -> tuple[int, Any]:
        return await self.call("PATCH", path, body, kind, agent)

    async def delete(self, path: str, body: Any = None) -> tuple[int, Any]:
        return await self.call("DELETE", path, body)

    async def watch(self, path: str, count: int | None = None) -> list[Any]:
        """The events of a watch: the first ``count``, or all until the server ends it."""
        found: list[Any] = []
        async with self.session.get(path) as answer:
            assert answer.status == 200
            async for line in answer.content:
                found.append(json.loads(line))
                if len(found) == count:
                    break
        return found


@pytest.fixture
def api() -> Api:
    return Api(Store(history=50))


@pytest.fixture
async def server(api: Api) -> AsyncIterator[ApiServer]:
    server = ApiServer(api, bookmark_seconds=0.1)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(server.url) as session:
        yield Client(session)


async def until(holds: Callable[[], object], what: str, timeout: float = 10.0) -> None:
    """Wait until something holds, or fail naming it."""
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, f"not within {timeout:g} s: {what}"
        await asyncio.sleep(0.01)
