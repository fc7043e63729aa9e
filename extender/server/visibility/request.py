"""What a request to the aggregated API is about, and the Status of a refusal. Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qs

from extender.cluster.reviews import Action, User
from extender.server.desk import Refusal
from extender.server.visibility import resources, trust
from extender.server.visibility.documents import BASE
from extender.server.visibility.resources import Form, Resource
from extender.wire import visibility as wire
from protos.contract import names

MOST_QUERY = 300
"""Parameters of a request. That for a plan of moves names pods to keep."""
REASONS = {
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Invalid",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
}
"""Of a Status. Source: meta.k8s.io/v1 StatusReason."""


def failure(refusal: Refusal) -> bytes:
    """The Status of a refusal."""
    return wire.failure(refusal.status, REASONS.get(refusal.status, "Unknown"), refusal.sentence)


def action(verb: str, plural: str, namespace: str, name: str = "") -> Action:
    """What a user wants to do with a resource of ours."""
    return Action(verb, names.VISIBILITY_GROUP, names.VISIBILITY_VERSION, plural, namespace, name)


class Target(NamedTuple):
    """What a request is about: a collection, or (with a name) one object."""

    resource: Resource
    namespace: str
    name: str

    @property
    def verb(self) -> str:
        return "get" if self.name else "list"

    @property
    def action(self) -> Action:
        return action(self.verb, self.resource.plural, self.namespace, self.name)

    def forbidden(self, user: User) -> Refusal:
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        what = f'resource "{self.resource.plural}" in API group "{names.VISIBILITY_GROUP}"'
        sentence = f'{self._named()} is forbidden: User "{user.username}" cannot {self.verb} {what} {where}'
        return Refusal(HTTPStatus.FORBIDDEN, sentence)

    def sees_too_little(self, user: User) -> Refusal:
        """The caller may not see the pods of all namespaces, and this would name them."""
        where = f'list resource "gpupods" in API group "{names.VISIBILITY_GROUP}" in all namespaces'
        sentence = f'{self._named()} is forbidden: it names pods of all namespaces, and User "{user.username}" cannot'
        return Refusal(HTTPStatus.FORBIDDEN, f"{sentence} {where}")

    def not_found(self) -> Refusal:
        return Refusal(HTTPStatus.NOT_FOUND, f"{self._named()} not found")

    def _named(self) -> str:
        kind = f"{self.resource.plural}.{names.VISIBILITY_GROUP}"
        return f'{kind} "{self.name}"' if self.name else kind


def target(path: str) -> Target:
    """The target of a path; raises Refusal."""
    namespace, rest = "", path.removeprefix(f"{BASE}/").split("/") if path.startswith(f"{BASE}/") else []
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name = (*rest, "", "")[:2]
    resource = resources.BY_PLURAL.get(plural)
    if resource is None or len(rest) > 2 or not _fits(resource, namespace, name):
        raise Refusal(HTTPStatus.NOT_FOUND, "the server could not find the requested resource")
    if not name and resource.list is None:
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{plural} cannot be listed: expected a name")
    return Target(resource, namespace, name)


def _fits(resource: Resource, namespace: str, name: str) -> bool:
    return bool(namespace) or not name if resource.namespaced else not namespace


def form(method: str, query: str, headers: trust.Headers) -> Form:
    """How the answer is to be written; raises Refusal for all but plain get and list."""
    try:
        given = parse_qs(query, max_num_fields=MOST_QUERY)
    except ValueError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the query has more than {MOST_QUERY} parameters") from error
    watches = given.get("watch", ["0"])[0].lower() not in ("0", "false")
    if method != "GET" or watches:
        what = "watch" if watches else method
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{what} is not supported on this resource: expected get or list")
    for selector in ("labelSelector", "fieldSelector"):
        if selector in given:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{selector} is not supported on this resource: expected none")
    if not _wants_table(headers):
        return "objects"
    return "table with objects" if given.get("includeObject") == ["Object"] else "table"


def _wants_table(headers: trust.Headers) -> bool:
    """Whether the client asks for a Table, as `kubectl get` does."""
    accepted = b",".join(value for name, value in headers if name == b"accept").replace(b" ", b"").split(b",")
    return any({b"as=Table", b"v=v1", b"g=meta.k8s.io"} <= set(one.split(b";")) for one in accepted)
