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
from extender.server.protocol import CLIENT_CERTIFICATE
from extender.server.status import PLANNING, PLANS
from extender.server.visibility import items, request, resources, trust
from extender.server.visibility.documents import documents
from extender.server.visibility.items import Sight, View
from extender.server.visibility.request import Target
from extender.server.visibility.resources import Form

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
        self._reviews, self._standing = reviews, standing
        self._documents = documents()
        self.front_proxy: FrontProxy | None = None
        """Nobody is believed without one."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI's
        try:
            user = self._user(scope)
            document = self._documents.get(scope["path"])
            if document is None:
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
        form = request.form(scope["method"], scope["query_string"].decode("latin-1"), scope["headers"])
        with reviewing():
            sight = await self._sight(user, target)
        standing = self._standing()
        if standing == "unready":
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the cluster's pods and nodes are still being listed")
        desk = self._plans if target.resource.plans else self._desk
        query = scope["query_string"].decode("latin-1") if target.resource.plans else ""
        question = repr((form, sight.namespaces, target.resource.plural, target.namespace, target.name, query))
        answer = await desk.ask(question, lambda: self._pieces(target, sight, form, query))
        warning = [STANDBY] if target.resource.namespaced and standing == "standby" else []
        await send_answer(send, desk, JSON, answer, warning)

    async def _sight(self, user: User, target: Target) -> Sight:
        """What the caller may see; raises Refusal if that does not include the target."""
        if not await self._reviews.permitted(user, target.action):
            raise target.forbidden(user)
        if target.resource.plans and not await self._reviews.permitted(user, _listing_pods("")):
            raise target.sees_too_little(user)
        if target.resource.namespaced:
            return Sight((target.namespace,) if target.namespace else None)
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

    def _pieces(self, target: Target, sight: Sight, form: Form, query: str) -> Pieces:
        view = View(self._core.engine, self._core.clock(), sight, query)
        resource, namespace, name = target
        if name or resource.list is None:
            return resources.single(resource, resource.get(view, namespace, name), target.not_found(), form)
        return resources.listed(resource, resource.list(view, namespace), form)


def _listing_pods(namespace: str) -> Action:
    return request.action("list", PODS, namespace)
