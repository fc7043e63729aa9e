"""The scheduler's side of the extender protocol: HTTP, JSON with Go field names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from extender.sim import podspec
from extender.sim.podspec import Object
from extender.sim.scheduler.config import Extender


class ExtenderError(Exception):
    """A call of an extender failed, or its answer is an error."""


def _fields(answer: Any) -> dict[str, Any]:
    """The answer's fields by lower-case name, because Go ignores the case of names."""
    if not isinstance(answer, dict):
        raise ExtenderError(f"json: cannot unmarshal {type(answer).__name__} into Go value")
    return {name.lower(): value for name, value in answer.items()}


class ExtenderClient:
    """Calls one extender of the configuration, which must be ``node_cache_capable``."""

    def __init__(self, config: Extender, session: aiohttp.ClientSession) -> None:
        self.config = config
        self._session = session
        self._managed = {m.name for m in config.managed_resources}
        self._url = config.url_prefix.rstrip("/")

    def interested(self, pod: Object) -> bool:
        if not self._managed:
            return True
        asked = (
            (c.get("resources") or {}).get(part) or {}
            for c, _ in podspec.containers(pod)
            for part in ("requests", "limits")
        )
        return any(self._managed & resources.keys() for resources in asked)

    async def _call(self, verb: str, body: object) -> Any:
        url = f"{self._url}/{verb}"
        try:
            async with self._session.post(
                url, data=msgspec.json.encode(body), timeout=aiohttp.ClientTimeout(total=self.config.timeout)
            ) as response:
                data = await response.read()
                if response.status != 200:
                    raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ExtenderError(f'Post "{url}": {error or "context deadline exceeded"}') from error
        try:
            return msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise ExtenderError(f"{verb}: {error}" if data else "EOF") from error

    async def filter(self, pod: Object, nodes: Sequence[str]) -> tuple[set[str], list[str]]:
        """The feasible nodes, and the reasons of the others."""
        args = {"Pod": pod, "Nodes": None, "NodeNames": nodes}
        answer = _fields(await self._call(self.config.filter_verb, args))
        if answer.get("error"):
            raise ExtenderError(answer["error"])
        feasible = set(answer.get("nodenames") or ())
        if unknown := feasible - set(nodes):
            raise ExtenderError(
                f"extender {self._url!r} claims a filtered node {sorted(unknown)[0]!r} which is not "
                f"found in the input node list"
            )
        failed = (answer.get("failednodes") or {}) | (answer.get("failedandunresolvablenodes") or {})
        return feasible, list(failed.values())

    async def bind(self, pod: Object, node: str) -> None:
        namespace, name = podspec.key(pod)
        body = {"PodName": name, "PodNamespace": namespace, "PodUID": podspec.uid(pod), "Node": node}
        answer = _fields(await self._call(self.config.bind_verb, body))
        if answer.get("error"):
            raise ExtenderError(answer["error"])
