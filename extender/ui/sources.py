"""Where the page reads: the aggregated API with the viewer's rights, or the status port."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from http import HTTPStatus
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from extender.ui import views
from extender.wire import answers, listings, page, visibility
from protos.contract import names
from protos.contract.printable import printable_json
from protos.kube import errors, paths
from protos.kube.client import ApiClient

T = TypeVar("T")
GROUP_VERSION = visibility.GROUP_VERSION
MOST_NAMESPACES = 20
"""Namespaces whose gangs and pods are asked for one by one, for viewers who may not list those of all."""
NOT_INSTALLED = f"the API server does not serve {names.VISIBILITY_GROUP}: install manifests/components/visibility"


class Rest(NamedTuple):
    """Queues, gangs and pending pods. `limits` says what is not shown."""

    queues: Sequence[listings.Queue] = ()
    gangs: Sequence[answers.Gang] = ()
    pods: Sequence[answers.WaitingPod] = ()
    limits: tuple[str, ...] = ()


class Trouble(Exception):
    """The cluster does not answer, or refuses; the sentence is for the viewer."""

    def __init__(self, sentence: str, status: int = HTTPStatus.BAD_GATEWAY) -> None:
        super().__init__(sentence)
        self.status = status


class Source(Protocol):
    """What a viewer may see of a cluster. All methods raise ApiError."""

    async def nodes(self) -> Sequence[page.Node]: ...

    async def rest(self, namespaces: Sequence[str]) -> Rest:
        """`namespaces` are those that the viewer is known to see."""
        ...

    async def explain(self, namespace: str, name: str) -> bytes: ...


class _Node(msgspec.Struct, frozen=True):
    status: visibility.GpuNodeStatus


class _Nodes(msgspec.Struct, frozen=True):
    items: tuple[_Node, ...] = ()


class _Queue(msgspec.Struct, frozen=True):
    status: listings.Queue


class _Queues(msgspec.Struct, frozen=True):
    items: tuple[_Queue, ...] = ()


class _Gang(msgspec.Struct, frozen=True):
    status: visibility.GangStatus


class _Gangs(msgspec.Struct, frozen=True):
    items: tuple[_Gang, ...] = ()


class _Pod(msgspec.Struct, frozen=True):
    status: answers.Pod


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...] = ()


class _Object(msgspec.Struct, frozen=True):
    status: msgspec.Raw


_nodes, _queues = msgspec.json.Decoder(_Nodes), msgspec.json.Decoder(_Queues)
_gangs, _pods = msgspec.json.Decoder(_Gangs), msgspec.json.Decoder(_Pods)
_object, _books = msgspec.json.Decoder(_Object), msgspec.json.Decoder(answers.Inspection)
_all_queues = msgspec.json.Decoder(listings.Queues)


class Aggregated:
    """The aggregated API."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def nodes(self) -> Sequence[page.Node]:
        found = await self._client.fetch(paths.path(GROUP_VERSION, "gpunodes"), _nodes)
        return [views.node(item.status) for item in found.items]

    async def rest(self, namespaces: Sequence[str]) -> Rest:
        queues = await _allowed(self._client.fetch(paths.path(GROUP_VERSION, "gpuqueues"), _queues))
        limits = () if queues is not None else (_hidden("gpuqueues"),)
        found = await self._workloads("")
        if found is None:
            own = namespaces[:MOST_NAMESPACES]
            limits = (*limits, _in_some(own))
            found = Rest()
            for namespace in own:
                more = await self._workloads(namespace) or Rest()
                found = Rest(gangs=[*found.gangs, *more.gangs], pods=[*found.pods, *more.pods])
        return Rest([item.status for item in queues.items] if queues else (), found.gangs, found.pods, limits)

    async def _workloads(self, namespace: str) -> Rest | None:
        """Those of a namespace, or ("") of all; None if the viewer may not list them."""
        gangs = await _allowed(self._client.fetch(paths.path(GROUP_VERSION, "gangs", namespace=namespace), _gangs))
        pods = await _allowed(self._client.fetch(paths.path(GROUP_VERSION, "gpupods", namespace=namespace), _pods))
        if gangs is None or pods is None:
            return None
        waiting = [item.status for item in pods.items if item.status.state == "waiting"]
        return Rest(gangs=[item.status for item in gangs.items], pods=waiting)

    async def explain(self, namespace: str, name: str) -> bytes:
        where = paths.path(GROUP_VERSION, "gpupods", namespace=namespace, name=name)
        return printable_json(bytes((await self._client.fetch(where, _object)).status))


class Status:
    """The status port, which shows everything to those who reach it."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def nodes(self) -> Sequence[page.Node]:
        return [views.node(views.full(node)) for node in (await self._client.fetch("/inspect", _books)).nodes]

    async def rest(self, namespaces: Sequence[str]) -> Rest:  # noqa: ARG002  # it shows all
        books = await self._client.fetch("/inspect", _books)
        queues = await self._client.fetch("/queues", _all_queues)
        return Rest(queues.queues, books.groups, books.waiting)

    async def explain(self, namespace: str, name: str) -> bytes:
        return printable_json(await self._client.get(f"/explain/{quote(namespace, safe='')}/{quote(name, safe='')}"))


async def _allowed(answer: Awaitable[T]) -> T | None:
    """The answer; None if the viewer may not have it."""
    try:
        return await answer
    except errors.Forbidden:
        return None


def _hidden(what: str) -> str:
    return f"{what} are not shown: you may not list {what}.{names.VISIBILITY_GROUP}"


def _in_some(namespaces: Sequence[str]) -> str:
    return f"gangs and pending pods are shown of the namespaces that you may list: {', '.join(namespaces) or 'none'}"


def trouble(error: errors.ApiError) -> Trouble:
    """What the viewer is told of a failed request."""
    match error:
        case errors.NotFound() if error.request.endswith("gpunodes") or not error.message:
            return Trouble(NOT_INSTALLED)
        case errors.NotFound():
            return Trouble(views.text(error.message), HTTPStatus.NOT_FOUND)
        case errors.Unauthorized():
            return Trouble("the API server does not accept your credentials: log in again")
        case errors.Forbidden():
            return Trouble(views.text(f"the API server refuses: {error.message}"), HTTPStatus.FORBIDDEN)
    return Trouble(views.text(f"the cluster does not answer: {error.message or error}"))
