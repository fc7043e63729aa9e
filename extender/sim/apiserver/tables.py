"""Objects as a table, for clients that ask for one: `kubectl get` does. Source: Table of meta.k8s.io/v1."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from extender.sim.apiserver import printers
from extender.sim.apiserver.resources import Object, Resource
from extender.sim.apiserver.store import Item

_META = "meta.k8s.io/v1"
JSON = "application/json"


def wanted(accept: str) -> bool:
    """Whether the first known media type of an Accept header is a table."""
    for part in accept.split(","):
        kind, *parameters = (word.strip() for word in part.split(";"))
        named = dict(word.partition("=")[::2] for word in parameters)
        if kind == JSON and f"{named.get('g')}/{named.get('v')}" == _META and named.get("as") == "Table":
            return True
        if kind in (JSON, "*/*") and "as" not in named:
            return False
    return False


def encoded(resource: Resource, items: Sequence[Item], rv: int, include: str = "") -> bytes:
    """The table of these objects as JSON. Each row has the object's metadata, the whole object or none of it."""
    columns = printers.columns(resource)
    rows = [{"cells": [c.cell(item.obj) for c in columns], "object": _about(resource, item, include)} for item in items]
    head = [
        {
            "name": c.name,
            "type": c.type,
            "format": "name" * (c.name == "Name"),
            "description": "",
            "priority": int(c.wide),
        }
        for c in columns
    ]
    table = {"kind": "Table", "apiVersion": _META, "metadata": {"resourceVersion": str(rv)}}
    return msgspec.json.encode({**table, "columnDefinitions": head, "rows": rows})


def _about(resource: Resource, item: Item, include: str) -> Object | None:
    match include:
        case "None":
            return None
        case "Object":
            return {**resource.type_meta, **item.obj}
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": item.obj["metadata"]}
