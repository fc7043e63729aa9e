"""Where the page reads: the aggregated API with the viewer's rights, or the status port."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from http import HTTPStatus
from typing import Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from extender.ui import views
from extender.wire import answers, listings, page, visibility
from extender.wire.visibility import GROUP_VERSION
from protos.contract import names
from protos.contract.printable import printable_json
from protos.kube import errors, paths
from protos.kube.client import ApiClient

T = TypeVar("T")
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
        """Of the same look as the nodes, which were asked for before. The viewer is known to see `namespaces`."""
        ...

    async def explain(self, namespace: str, name: str) -> bytes: ...


class _Item(msgspec.Struct, Generic[T], frozen=True):
    status: T


class _List(msgspec.Struct, Generic[T], frozen=True):
    items: tuple[_Item[T], ...] = ()


_nodes = msgspec.json.Decoder(_List[visibility.GpuNodeStatus])
_queues = msgspec.json.Decoder(_List[listings.Queue])
_gangs = msgspec.json.Decoder(_List[visibility.GangStatus])
_pods = msgspec.json.Decoder(_List[answers.Pod])
_object, _books = msgspec.json.Decoder(_Item[msgspec.Raw]), msgspec.json.Decoder(answers.Inspection)
_all_queues = msgspec.json.Decoder(listings.Queues)


class Aggregated:
    """The aggregated API."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def nodes(self) -> Sequence[page.Node]:
        return [views.node(status) for status in await self._list("gpunodes", _nodes)]

    async def rest(self, namespaces: Sequence[str]) -> Rest:
        queues = await _allowed(self._list("gpuqueues", _queues))
        limits = () if queues is not None else (_hidden("gpuqueues"),)
        found = await self._workloads("")
        if found is None:
            own = namespaces[:MOST_NAMESPACES]
            limits = (*limits, _in_some(own))
            found = Rest()
            for namespace in own:
                more = await self._workloads(namespace) or Rest()
                found = Rest(gangs=[*found.gangs, *more.gangs], pods=[*found.pods, *more.pods])
        return Rest(queues or (), found.gangs, found.pods, limits)

    async def _workloads(self, namespace: str) -> Rest | None:
        """Those of a namespace, or ("") of all; None if the viewer may not list them."""
        gangs = await _allowed(self._list("gangs", _gangs, namespace))
        pods = await _allowed(self._list("gpupods", _pods, namespace))
        if gangs is None or pods is None:
            return None
        return Rest(gangs=gangs, pods=[pod for pod in pods if pod.state == "waiting"])

    async def _list(self, plural: str, decoder: msgspec.json.Decoder[_List[T]], namespace: str = "") -> list[T]:
        found = await self._client.fetch(paths.path(GROUP_VERSION, plural, namespace=namespace), decoder)
        return [item.status for item in found.items]

    async def explain(self, namespace: str, name: str) -> bytes:
        where = paths.path(GROUP_VERSION, "gpupods", namespace=namespace, name=name)
        return printable_json(bytes((await self._client.fetch(where, _object)).status))


class Status:
    """The status port, which shows everything to those who reach it. One of its pages has nodes, gangs and pods."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._read = answers.Inspection()
        """When the nodes were asked for last."""

    async def nodes(self) -> Sequence[page.Node]:
        self._read = await self._client.fetch("/inspect", _books)
        return [views.node(views.full(node)) for node in self._read.nodes]

    async def rest(self, namespaces: Sequence[str]) -> Rest:  # noqa: ARG002  # it shows all
        queues = await self._client.fetch("/queues", _all_queues)
        return Rest(queues.queues, self._read.groups, self._read.waiting)

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
