"""The fields of our CustomResourceDefinitions, as the page shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from tests.unit.docs.pages import ROOT

FILES = ("podgroup", "queue", "gpuclass")
COMMON = ("apiVersion", "kind", "metadata")
"""Fields that every object has."""


def definitions() -> Iterator[dict[str, Any]]:
    """The definitions, in the order of the page."""
    for name in FILES:
        yield yaml.safe_load((ROOT / f"manifests/base/extender/{name}.yaml").read_text())


def table(definition: dict[str, Any]) -> str:
    """Every field of one kind, with its type and its description."""
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    rows = [f"| `{path}` | {kind} | {text} |" for path, kind, text in _fields(schema, "")]
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows])


def columns(definition: dict[str, Any]) -> str:
    """What `kubectl get` shows of one kind."""
    (version,) = definition["spec"]["versions"]
    found = version["additionalPrinterColumns"]
    shown, wide = (
        ", ".join(each["name"].upper() for each in found if each.get("priority", 0) == last) for last in (0, 1)
    )
    return f"`kubectl get {definition['metadata']['name']}` shows {shown}; with `-o wide` also {wide}."


def _fields(schema: dict[str, Any], above: str) -> Iterator[tuple[str, str, str]]:
    for name, field in schema.get("properties", {}).items():
        if above or name not in COMMON:
            yield f"{above}{name}", _type(field), field.get("description", "").replace("|", "\\|")
            inner = field.get("items", field)
            yield from _fields(inner, f"{above}{name}{'[]' * ('items' in field)}.")


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "items" in field:
        return f"list of {_type(field['items'])}"
    values = field.get("additionalProperties")
    if isinstance(values, dict):
        return f"map to {_type(values)}"
    if "anyOf" in field:
        return " or ".join(each["type"] for each in field["anyOf"])
    return str(field.get("type", "any"))
