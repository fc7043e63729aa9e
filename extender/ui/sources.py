"""Where the page reads: the aggregated API with the viewer's rights, or the status port."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from http import HTTPStatus
from typing import Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from extender.ui import views
from extender.wire import answers, listings, page, visibility, whatif
from extender.wire.visibility import GROUP_VERSION, MOST_TOKENS, WAITING
from protos.contract import names
from protos.contract.printable import printable_json
from protos.kube import errors, paths
from protos.kube.client import ApiClient

T = TypeVar("T")
WHOLE_EVERY_S = 600.0
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

    async def node(self, name: str) -> answers.NodePage: ...

    async def rest(self, namespaces: Sequence[str]) -> Rest:
        """Of the same look as the nodes, which were asked for before. The viewer is known to see `namespaces`."""
        ...

    async def explain(self, namespace: str, name: str) -> bytes: ...

    async def what_if(self, namespace: str, question: bytes) -> bytes:
        """The answer's status, as JSON."""
        ...


class _Item(msgspec.Struct, Generic[T], frozen=True):
    status: T


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    partial: bool = False
    """Only what has changed is listed."""


class _List(msgspec.Struct, Generic[T], frozen=True):
    items: tuple[_Item[T], ...] = ()
    metadata: _ListMeta = _ListMeta()
    gone: tuple[str, ...] = ()


_nodes = msgspec.json.Decoder(_List[visibility.GpuNodeStatus])
_node, _page = msgspec.json.Decoder(_Item[answers.NodePage]), msgspec.json.Decoder(answers.NodePage)
_queues = msgspec.json.Decoder(_List[listings.Queue])
_gangs = msgspec.json.Decoder(_List[visibility.GangStatus])
_pods = msgspec.json.Decoder(_List[answers.Pod])
_object, _books = msgspec.json.Decoder(_Item[msgspec.Raw]), msgspec.json.Decoder(answers.Inspection)
_all_queues = msgspec.json.Decoder(listings.Queues)


class Aggregated:
    """The aggregated API."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._nodes: dict[str, page.Node] = {}
        self._tokens: dict[str, str] = {}
        """Of the last lists of nodes, by the replica that answered; the last is the last that came."""
        self._whole = float("-inf")
        """When all nodes were read last."""

    async def nodes(self) -> Sequence[page.Node]:
        """Read those that have changed. Once in a while all are read: replicas may differ for a moment."""
        if time.monotonic() - self._whole > WHOLE_EVERY_S:
            self._tokens.clear()
        params = {"changedSince": ",".join(self._tokens.values())}
        found = await self._client.fetch(paths.path(GROUP_VERSION, "gpunodes"), _nodes, params=params)
        if not found.metadata.partial:
            self._nodes, self._whole = {}, time.monotonic()
        self._nodes |= {item.status.name: views.node(item.status) for item in found.items}
        for name in found.gone:
            self._nodes.pop(name, None)
        self._remember(found.metadata.resource_version)
        return [self._nodes[name] for name in sorted(self._nodes)]

    async def node(self, name: str) -> answers.NodePage:
        return (await self._client.fetch(paths.path(GROUP_VERSION, "gpunodes", name=name), _node)).status

    def _remember(self, token: str) -> None:
        replica = token.partition(".")[0]
        self._tokens.pop(replica, None)
        if token:
            self._tokens[replica] = token
        while len(self._tokens) > MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]

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
        pods = await _allowed(self._list("gpupods", _pods, namespace, fieldSelector=WAITING))
        if gangs is None or pods is None:
            return None
        return Rest(gangs=gangs, pods=pods)

    async def _list(
        self, plural: str, decoder: msgspec.json.Decoder[_List[T]], namespace: str = "", **params: str
    ) -> list[T]:
        found = await self._client.fetch(paths.path(GROUP_VERSION, plural, namespace=namespace), decoder, params=params)
        return [item.status for item in found.items]

    async def explain(self, namespace: str, name: str) -> bytes:
        where = paths.path(GROUP_VERSION, "gpupods", namespace=namespace, name=name)
        return printable_json(bytes((await self._client.fetch(where, _object)).status))

    async def what_if(self, namespace: str, question: bytes) -> bytes:
        where = paths.path(GROUP_VERSION, whatif.PLURAL, namespace=namespace)
        return printable_json(bytes(_object.decode(await self._client.post(where, msgspec.Raw(question))).status))


class Status:
    """The status port, which shows everything to those who reach it. One of its pages has nodes, gangs and pods."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._read = answers.Inspection()
        """When the nodes were asked for last."""

    async def nodes(self) -> Sequence[page.Node]:
        self._read = await self._client.fetch("/inspect", _books)
        return [views.node(views.full(node)) for node in self._read.nodes]

    async def node(self, name: str) -> answers.NodePage:
        return await self._client.fetch(f"/inspect/{quote(name, safe='')}", _page)

    async def rest(self, namespaces: Sequence[str]) -> Rest:  # noqa: ARG002  # it shows all
        queues = await self._client.fetch("/queues", _all_queues)
        return Rest(queues.queues, self._read.groups, self._read.waiting)

    async def explain(self, namespace: str, name: str) -> bytes:
        return printable_json(await self._client.get(f"/explain/{quote(namespace, safe='')}/{quote(name, safe='')}"))

    async def what_if(self, namespace: str, question: bytes) -> bytes:  # noqa: ARG002  # the question names it
        return printable_json(await self._client.post("/whatif", msgspec.Raw(question)))


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
            return Trouble("the API server does not accept your credentials: log in again", HTTPStatus.UNAUTHORIZED)
        case errors.Forbidden():
            return Trouble(views.text(f"the API server refuses: {error.message}"), HTTPStatus.FORBIDDEN)
    return Trouble(views.text(f"the cluster does not answer: {error.message or error}"))
