"""The resource `whatifs`: a question that is created, and answered at once with its status; nothing is stored.

As with a SubjectAccessReview, there is nothing to get or list.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec

from extender.cluster.reviews import User
from extender.engine.cycle.engine import Engine
from extender.server.desk import Pieces, Refusal
from extender.server.visibility.items import Sight
from extender.server.whatif.page import answered
from extender.server.whatif.question import bad, read
from extender.wire import whatif as wire
from protos.contract import names

BASE = f"/apis/{wire.API_VERSION}"
DESCRIBED = {
    "name": wire.PLURAL,
    "singularName": wire.KIND.lower(),
    "namespaced": True,
    "kind": wire.KIND,
    "verbs": ["create"],
}
"""The resource in discovery."""


def namespace(path: str) -> str:
    """The namespace of a question at this path; "" for all other paths."""
    match path.removeprefix(f"{BASE}/").split("/") if path.startswith(f"{BASE}/") else []:
        case ["namespaces", where, wire.PLURAL]:
            return where
    return ""


def forbidden(user: User, namespace: str) -> Refusal:
    """The refusal of a user who may not ask."""
    what = f'resource "{wire.PLURAL}" in API group "{names.VISIBILITY_GROUP}" in the namespace "{namespace}"'
    sentence = f'{wire.PLURAL}.{names.VISIBILITY_GROUP} is forbidden: User "{user.username}" cannot create {what}'
    return Refusal(HTTPStatus.FORBIDDEN, sentence)


def pieces(engine: Engine, body: bytes, clock: Callable[[], float], sight: Sight, namespace: str) -> Pieces:
    """The question with its answer as the status; raises Refusal."""
    asked = read(body)
    yield b""
    if asked.metadata.namespace not in ("", namespace):
        raise bad(f"metadata.namespace is {asked.metadata.namespace[:100]!r}: expected {namespace!r}")
    status = yield from answered(engine, asked.spec, clock, sight, namespace)
    metadata = {"name": asked.metadata.name, "namespace": namespace}
    yield b""
    yield msgspec.json.encode(
        {
            "apiVersion": wire.API_VERSION,
            "kind": wire.KIND,
            "metadata": {key: value for key, value in metadata.items() if value},
            "status": status,
        }
    )


def schemas(template: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schemas of OpenAPI by name, and the path; `template` makes a reference of a name."""
    _, found = msgspec.json.schema_components([wire.Status], ref_template=template)
    gvk = {"group": names.VISIBILITY_GROUP, "version": names.VISIBILITY_VERSION, "kind": wire.KIND}
    found[wire.KIND] = {
        "type": "object",
        "description": "What would become of pods that do not exist yet.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "status": {"$ref": template.format(name=wire.Status.__name__)},
        },
        "x-kubernetes-group-version-kind": [gvk],
    }
    content = {"application/json": {"schema": {"$ref": template.format(name=wire.KIND)}}}
    post = {
        "x-kubernetes-action": "post",
        "x-kubernetes-group-version-kind": gvk,
        "requestBody": {"content": content},
        "responses": {"201": {"description": "Created", "content": content}},
    }
    return found, {f"{BASE}/namespaces/{{namespace}}/{wire.PLURAL}": {"post": post}}
