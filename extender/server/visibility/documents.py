"""What describes the aggregated API to clients: discovery and OpenAPI. All of it is fixed and names no object.

Source: meta.k8s.io/v1 APIGroupList, APIGroup, APIResourceList; k8s.io/kube-openapi handler3.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from extender.server.visibility.resources import RESOURCES, Resource
from extender.wire.visibility import GROUP_VERSION
from protos.contract import names

BASE = f"/apis/{GROUP_VERSION}"
OPENAPI = f"/openapi/v3{BASE}"
CATEGORY = "gangshare"
"""`kubectl get gangshare` lists all kinds."""


def documents() -> dict[str, bytes]:
    """The documents by path."""
    schema = msgspec.json.encode(_openapi())
    version = {"groupVersion": GROUP_VERSION, "version": names.VISIBILITY_VERSION}
    group = {"name": names.VISIBILITY_GROUP, "versions": [version], "preferredVersion": version}
    resources = [_described(resource) for resource in RESOURCES]
    of_version = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": resources}
    link = {"serverRelativeURL": f"{OPENAPI}?hash={hashlib.sha256(schema).hexdigest().upper()}"}
    info = {"title": "Gangshare", "version": names.VISIBILITY_VERSION}
    found = {
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]},
        f"/apis/{names.VISIBILITY_GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **group},
        BASE: of_version,
        "/openapi/v2": {"swagger": "2.0", "info": info, "paths": {}},
        "/openapi/v3": {"paths": {BASE.strip("/"): link}},
    }
    return {**{path: msgspec.json.encode(document) for path, document in found.items()}, OPENAPI: schema}


def _described(resource: Resource) -> dict[str, Any]:
    return {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        "categories": [CATEGORY],
    }


def _openapi() -> dict[str, Any]:
    """The schemas of all objects, for `kubectl explain`."""
    template = "#/components/schemas/{name}"
    shapes = [resource.shape for resource in RESOURCES]
    _, schemas = msgspec.json.schema_components(shapes, ref_template=template)
    paths: dict[str, Any] = {}
    for resource in RESOURCES:
        kind = {"group": names.VISIBILITY_GROUP, "version": names.VISIBILITY_VERSION, "kind": resource.kind}
        gvk = {"x-kubernetes-group-version-kind": kind}
        status = {"$ref": template.format(name=resource.shape.__name__)}
        schemas[resource.kind] = {
            "type": "object",
            "description": resource.shape.__doc__,
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "status": status,
            },
            "x-kubernetes-group-version-kind": [kind],
        }
        content = {"application/json": {"schema": {"$ref": template.format(name=resource.kind)}}}
        answer = {"200": {"description": "OK", "content": content}}
        where = f"{BASE}/namespaces/{{namespace}}" if resource.namespaced else BASE
        collection = f"{where}/{resource.plural}"
        for path, action in ((f"{collection}/{{name}}", "get"), (collection, "list"))[: len(resource.verbs)]:
            paths[path] = {"get": {"x-kubernetes-action": action, **gvk, "responses": answer}}
    info = {"title": "Gangshare", "version": names.VISIBILITY_VERSION}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}
