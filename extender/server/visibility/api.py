"""Answers the API server's requests: who asks, for what, whether they may, and the objects as they may see them.

Bare ASGI. Objects are read at a desk, in short slices and behind kube-scheduler's questions. A caller needs `get` or
`list` on the resource. What is in no namespace (GPUs, nodes, queues) names only pods of namespaces where the caller may
list `gpupods`; the other pods are counted.

Every replica answers from its own books once they are complete. A standby is not asked by kube-scheduler, so it may not
know why a pod is pending; its answers say so.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from http import HTTPStatus
from typing import Literal

import msgspec

from extender.cluster.front_proxy import FrontProxy
from extender.cluster.reviews import AT_ONCE, Action, Reviews, User
from extender.server.core import Core
from extender.server.desk import Desk, Pieces, Refusal, Traffic
from extender.server.pages import HEADERS, JSON, Message, Receive, Send, reviewing, send_answer, send_text
from extender.server.pages import Form as PostForm
from extender.server.protocol import CLIENT_CERTIFICATE
from extender.server.status import ASKING, PLANNING, PLANS, WHAT_IFS
from extender.server.visibility import items, request, resources, trust, whatifs
from extender.server.visibility.changes import Changes
from extender.server.visibility.documents import documents
from extender.server.visibility.items import Sight, View
from extender.server.visibility.request import Target, Wanted
from extender.server.visibility.resources import List, Resource
from extender.wire import whatif as wire
from protos.contract.bounds import WHAT_IF_BODY

Standing = Literal["unready", "standby", "leader"]
"""What this replica is; unready: its books are not complete."""
QUESTIONS = 8
"""Different questions under way at most; those for plans of moves apart, since a plan takes long."""
PODS = "gpupods"
"""Who may list this in a namespace sees the names of the namespace's pods everywhere."""
MOST_NAMESPACES = 100
"""Namespaces for which one answer asks whether its caller may see their pods. Pods of further ones are counted."""
STANDBY = (b"warning", b'299 - "a standby replica answered: it may not know why pods are pending; ask again"')
"""kubectl prints it."""


class Api:
    """The application."""

    def __init__(self, core: Core, traffic: Traffic, reviews: Reviews, standing: Callable[[], Standing]) -> None:
        self._core, self._desk, self._plans = core, Desk(traffic, QUESTIONS), Desk(traffic, PLANS, PLANNING)
        self._what_ifs = Desk(traffic, WHAT_IFS, ASKING)
        self._reviews, self._standing = reviews, standing
        self._documents, self._changes = documents(), Changes()
        self.front_proxy: FrontProxy | None = None
        """Nobody is believed without one."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            user = self._user(scope)
            document = self._documents.get(scope["path"])
            asks_in = whatifs.namespace(scope["path"])
            if asks_in:
                await self._what_if(user, asks_in, scope, receive, send)
            elif document is None:
                await self._answer(user, scope, send)
        except Refusal as refusal:
            await send_text(send, refusal.status, request.failure(refusal), JSON, HEADERS.get(refusal.status, ()))
            return
        if document is not None:
            await send_text(send, HTTPStatus.OK, document, JSON)

    def _user(self, scope: Message) -> User:
        if self.front_proxy is None:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "the API server's front proxy is not known yet: try again")
        return trust.caller(self.front_proxy, scope["state"].get(CLIENT_CERTIFICATE), scope["headers"])

    async def _answer(self, user: User, scope: Message, send: Send) -> None:
        """Answer a request for objects; raises Refusal before anything is sent."""
        target = request.target(scope["path"])
        query = scope["query_string"].decode("latin-1")
        wanted = request.wanted(target, scope["method"], query, scope["headers"])
        with reviewing():
            sight = await self._sight(user, target)
        standing = self._ready()
        desk = self._plans if target.resource.plans else self._desk
        query = query if target.resource.plans else ""
        question = repr((wanted, sight.namespaces, target.resource.plural, target.namespace, target.name, query))
        answer = await desk.ask(question, lambda: self._pieces(target, sight, wanted, query))
        warning = [STANDBY] if target.resource.namespaced and standing == "standby" else []
        await send_answer(send, desk, JSON, answer, warning)

    async def _what_if(self, user: User, namespace: str, scope: Message, receive: Receive, send: Send) -> None:
        """Answer what would become of pods of a namespace; raises Refusal before anything is sent."""
        if scope["method"] != "POST":
            sentence = f"{scope['method']} is not supported on {wire.PLURAL}: expected create"
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, sentence)
        with reviewing():
            if not await self._reviews.permitted(user, request.action("create", wire.PLURAL, namespace)):
                raise whatifs.forbidden(user, namespace)
            sight = await self._everywhere(user)
        standing = self._ready()
        form = PostForm(
            self._what_ifs, repr((namespace, sight.namespaces)), WHAT_IF_BODY, self._made(namespace, sight), None
        )
        page = await form.filled(receive)
        answer = await page.desk.ask(page.question, page.work)
        warning = [STANDBY] if standing == "standby" else []
        await send_answer(send, page.desk, JSON, answer, warning, HTTPStatus.CREATED)

    def _made(self, namespace: str, sight: Sight) -> Callable[[bytes], Pieces]:
        return lambda body: whatifs.pieces(self._core.engine, body, self._core.clock, sight, namespace)

    def _ready(self) -> Standing:
        """What this replica is; raises Refusal if its books are not complete."""
        standing = self._standing()
        if standing == "unready":
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the cluster's pods and nodes are still being listed")
        return standing

    async def _sight(self, user: User, target: Target) -> Sight:
        """What the caller may see; raises Refusal if that does not include the target."""
        if not await self._reviews.permitted(user, target.action):
            raise target.forbidden(user)
        if target.resource.plans and not await self._reviews.permitted(user, _listing_pods("")):
            raise target.sees_too_little(user)
        if target.resource.namespaced:
            return Sight((target.namespace,) if target.namespace else None)
        return await self._everywhere(user)

    async def _everywhere(self, user: User) -> Sight:
        """The namespaces whose pods the caller may see."""
        if await self._reviews.permitted(user, _listing_pods("")):
            return Sight(None)
        answer = await self._desk.ask("namespaces", lambda: items.namespaces(self._core.engine))
        every: list[str] = msgspec.json.decode(b"".join(answer.parts))[:MOST_NAMESPACES]
        return Sight(tuple([namespace async for namespace in self._seen(user, every)]))

    async def _seen(self, user: User, namespaces: Sequence[str]) -> AsyncIterator[str]:
        """Those of the namespaces whose pods the caller may list. A few are reviewed in each turn of the event loop."""
        for start in range(0, len(namespaces), AT_ONCE):
            some = namespaces[start : start + AT_ONCE]
            may = await asyncio.gather(*(self._reviews.permitted(user, _listing_pods(each)) for each in some))
            for namespace in itertools.compress(some, may):
                yield namespace
            await asyncio.sleep(0)

    def _pieces(self, target: Target, sight: Sight, wanted: Wanted, query: str) -> Pieces:
        view = View(self._core.engine, self._core.clock(), sight, query, wanted.waiting)
        resource, namespace, name = target
        if name or resource.list is None:
            return resources.single(resource, resource.get(view, namespace, name), target.not_found(), wanted.form)
        if wanted.since is not None:
            return self._changed(resource, resource.list, view, wanted.since)
        return resources.listed(resource, resource.list(view, namespace), wanted.form)

    def _changed(self, resource: Resource, listing: List, view: View, tokens: Sequence[str]) -> Pieces:
        """The nodes that have changed since one of these tokens, or all."""
        for _ in self._changes.look(view.engine.nodes, view.engine.tenancy.queues.epoch, view.now):
            yield b""
        found = self._changes.since(tokens, view.sight)
        metadata = {"resourceVersion": found.token, "partial": found.changed is not None}
        more = {"metadata": metadata, "gone": found.gone}
        yield from resources.listed(resource, listing(view._replace(names=found.changed), ""), "objects", more)


def _listing_pods(namespace: str) -> Action:
    return request.action("list", PODS, namespace)
