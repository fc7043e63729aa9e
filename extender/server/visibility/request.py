"""What a request to the aggregated API is about, and the Status of a refusal. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from protos.contract.printable import brief, printable

MOST_QUERY = 300
"""Parameters of a request. That for a plan of moves names pods to keep."""
REASONS = {
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Invalid",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RequestEntityTooLarge",
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


class Wanted(NamedTuple):
    """What of the target is asked for, and how the answer is to be written."""

    form: Form
    waiting: bool = False
    """Only pending pods."""
    since: tuple[str, ...] | None = None
    """Only nodes that have changed since one of these tokens, with a new token; None: all nodes, without one."""


def wanted(target: Target, method: str, query: str, headers: trust.Headers) -> Wanted:
    """What a get or list asks for; raises Refusal for all else."""
    try:
        given = parse_qs(query, keep_blank_values=True, max_num_fields=MOST_QUERY)
    except ValueError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the query has more than {MOST_QUERY} parameters") from error
    form = _form(method, given, headers)
    return Wanted(form, _only_waiting(target, given), _since(target, form, given))


def _only_waiting(target: Target, given: Mapping[str, Sequence[str]]) -> bool:
    selector = given.get("fieldSelector", [""])[0]
    if selector and (selector != wire.WAITING or not target.resource.selects or target.name):
        expected = wire.WAITING if target.resource.selects and not target.name else "none"
        what = f"fieldSelector is {brief(printable(selector), wire.TOKEN_LENGTH)}"
        raise Refusal(HTTPStatus.BAD_REQUEST, f"{what}, which is not supported on this resource: expected {expected}")
    return bool(selector)


def _since(target: Target, form: Form, given: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    if "changedSince" not in given:
        return None
    if not target.resource.changes or target.name or form != "objects":
        raise Refusal(HTTPStatus.BAD_REQUEST, "changedSince is not supported here: expected a list of gpunodes as JSON")
    tokens = tuple(given["changedSince"][0].split(","))
    if len(tokens) > wire.MOST_TOKENS or max(map(len, tokens)) > wire.TOKEN_LENGTH:
        expected = f"at most {wire.MOST_TOKENS} tokens of {wire.TOKEN_LENGTH} characters, with commas between them"
        raise Refusal(HTTPStatus.BAD_REQUEST, f"changedSince is too long: expected {expected}")
    return tokens


def _form(method: str, given: Mapping[str, Sequence[str]], headers: trust.Headers) -> Form:
    watches = given.get("watch", ["0"])[0].lower() not in ("0", "false")
    if method != "GET" or watches:
        what = "watch" if watches else method
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{what} is not supported on this resource: expected get or list")
    if "labelSelector" in given:
        raise Refusal(HTTPStatus.BAD_REQUEST, "labelSelector is not supported on this resource: expected none")
    if not _wants_table(headers):
        return "objects"
    return "table with objects" if given.get("includeObject") == ["Object"] else "table"


def _wants_table(headers: trust.Headers) -> bool:
    """Whether the client asks for a Table, as `kubectl get` does."""
    accepted = b",".join(value for name, value in headers if name == b"accept").replace(b" ", b"").split(b",")
    return any({b"as=Table", b"v=v1", b"g=meta.k8s.io"} <= set(one.split(b";")) for one in accepted)
