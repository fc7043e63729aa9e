"""The API over HTTP on 127.0.0.1, and a kubeconfig file for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from extender.sim.apiserver import bodies, errors, paths, pods, proxy, reading, tables
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.paths import Target
from extender.sim.apiserver.resources import PODS
from extender.sim.apiserver.store import Item

Refuse = Callable[[str, str], errors.ApiError | None]
_encode = msgspec.json.encode
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def _json(body: bytes, code: int = 200) -> web.Response:
    return web.Response(body=body, status=code, content_type="application/json")


class ApiServer:
    """Serves an ``Api`` to everybody on this machine."""

    def __init__(self, api: Api, bookmark_seconds: float = 10.0) -> None:
        self.api = api
        self.url = ""
        self.refuse: Refuse = lambda _method, _path: None
        """Called for every request: the error to answer, or None to handle the request."""
        self._bookmark_seconds = bookmark_seconds
        self._watches: set[asyncio.Task[Any]] = set()
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        self.drop_watches()
        if self._runner:
            await self._runner.cleanup()

    def drop_watches(self) -> None:
        """Break the connection of every watch, as a server that goes down does."""
        for task in self._watches:
            task.cancel()

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig with this server."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": {"server": self.url}}],
            "users": [{"name": "admin", "user": {}}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "admin"}}],
            "current-context": "embedded",
        }
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if error := self.refuse(request.method, request.path):
                raise error
            return await self._route(request)
        except errors.ApiError as error:
            return _json(_encode(error.status()), error.code)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        if (proxied := proxy.named(request.path)) and request.method == "GET":
            return await proxy.answer(self.api.get(PODS, proxied[0]).obj, proxied[1])
        target = paths.parse(request.path, self.api.catalogue)
        if target is None:
            known = self.api.catalogue
            document = paths.discovery(request.path, known) or paths.openapi(request.path, known)
            if document is None or request.method != "GET":
                return web.Response(text="404 page not found\n", status=404)
            return _json(_encode(document))
        if "dryRun" in request.query:
            raise errors.bad_request("the embedded cluster knows no dryRun: expected a request without it")
        match request.method:
            case "GET":
                return await self._get(request, target)
            case "POST":
                return _json(self._post(target, await _body(request), _writer(request, target)), 201)
            case "PUT":
                obj = _checked(target, await _body(request))
                return self._answer(target, self.api.update(target.resource, target.key, obj, _writer(request, target)))
            case "PATCH":
                body, kind, writer = await _body(request), request.content_type, _writer(request, target)
                return self._answer(target, self.api.patch(target.resource, target.key, body, kind, writer))
            case "DELETE":
                return self._delete(target, await _body(request), dict(request.query))
        raise errors.not_allowed()

    def _answer(self, target: Target, item: Item) -> web.Response:
        return _json(item.raw(target.resource))

    async def _get(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        query, as_table = request.query, tables.wanted(request.headers.get("Accept", ""))
        if query.get("watch") in ("true", "1"):
            return await self._watch(request, target, as_table)
        if not target.name:
            return _json(reading.list_objects(self.api.store, target, query, as_table))
        item = self.api.get(target.resource, target.key)
        if target.subresource == "log":
            container = pods.log_container(item.obj, query.get("container", ""))
            return web.Response(text=self.api.log_of(item.obj, container))
        return _json(reading.one_object(target, item, query, as_table))

    async def _watch(self, request: web.BaseRequest, target: Target, as_table: bool) -> web.StreamResponse:
        watch = reading.Watch(self.api, target, request.query, as_table, self._bookmark_seconds)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        try:
            async for chunk in watch.chunks():
                await response.write(chunk)
        except ConnectionResetError:
            pass  # the client has closed the connection
        finally:
            self._watches.discard(task)
        return response

    def _post(self, target: Target, body: Any, writer: Writer) -> bytes:
        obj = _checked(target, body)
        if target.subresource in ("binding", "eviction"):
            write = self.api.bind if target.subresource == "binding" else self.api.evict
            write(target.key, obj)
            return _encode({**_SUCCESS, "code": 201})
        if target.name:
            raise errors.not_allowed()
        return self.api.create(target.resource, target.namespace, obj, writer).raw(target.resource)

    def _delete(self, target: Target, options: Any, query: dict[str, str]) -> web.Response:
        if not target.name:
            raise errors.not_allowed()
        asked = dict(options) if isinstance(options, dict) else {}
        if "gracePeriodSeconds" in query:
            asked["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
        item = self.api.delete(target.resource, target.key, asked)
        if target.resource is PODS or self.api.store.get(target.resource, target.key):
            return self._answer(target, item)
        about = errors.details(target.resource, target.name, uid=item.obj["metadata"]["uid"])
        return _json(_encode({**_SUCCESS, "details": about}))


async def _body(request: web.BaseRequest) -> Any:
    return bodies.decoded(await request.read(), request.content_type)


def _checked(target: Target, body: Any) -> dict[str, Any]:
    """The body; raises ApiError 400 unless it is an object of the target's kind."""
    if not isinstance(body, dict):
        raise errors.bad_request(f"the body must be an object, got {type(body).__name__}")
    kind = body.get("kind", target.resource.kind)
    if not target.subresource and kind != target.resource.kind:
        raise errors.bad_request(
            f"{kind} in version {target.resource.version!r} cannot be handled as a {target.resource.kind}"
        )
    return body


def _writer(request: web.BaseRequest, target: Target) -> Writer:
    agent = request.headers.get("User-Agent", "").partition("/")[0] or "unknown"
    return Writer(request.query.get("fieldManager") or agent, target.subresource)
