"""Structural schemas of custom resources: unknown fields go, defaults come, and what does not fit is refused. Pure.

Source: apiextensions.k8s.io/v1, OpenAPI v3 without references. CEL rules (``x-kubernetes-validations``) and the
logical keywords (``anyOf``, ``not``) are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import CRDS, Object, Resource

Schema = dict[str, Any]
_PRESERVE, _INT_OR_STRING = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"
_KEPT_AT_ROOT = ("apiVersion", "kind", "metadata")
_DATE_TIME = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
}


def admitted(resource: Resource, schema: Schema, obj: Object) -> Object:
    """``obj`` as the server would keep it; ApiError 422 naming the first field that does not fit."""
    kept = {name: obj[name] for name in _KEPT_AT_ROOT if name in obj}
    rest = {name: value for name, value in obj.items() if name not in kept}
    properties = {n: s for n, s in (schema.get("properties") or {}).items() if n not in _KEPT_AT_ROOT}
    body = _shaped({**schema, "properties": properties}, rest)
    for field, why in _problems({**schema, "properties": properties}, body, ""):
        raise errors.invalid(resource, obj["metadata"]["name"], field, why)
    return {**kept, **body}


def check_definition(definition: Object) -> None:
    """ApiError 422 when a CustomResourceDefinition has a version without a schema."""
    for index, version in enumerate(definition["spec"]["versions"]):
        if "openAPIV3Schema" not in (version.get("schema") or {}):
            field = f"spec.versions[{index}].schema.openAPIV3Schema"
            raise errors.invalid(CRDS, definition["metadata"]["name"], field, "Required value: schemas are required")


def _shaped(schema: Schema, value: Any) -> Any:
    """Without unknown fields, with defaults."""
    if isinstance(value, list):
        return [_shaped(schema.get("items") or {}, item) for item in value]
    if not isinstance(value, dict) or not schema:
        return value
    properties: dict[str, Schema] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    found: Object = {}
    for name, inner in value.items():
        if name in properties:
            if inner is not None or properties[name].get("nullable"):
                found[name] = _shaped(properties[name], inner)
        elif isinstance(others, dict):
            found[name] = _shaped(others, inner)
        elif others or schema.get(_PRESERVE):
            found[name] = inner
    for name, inner_schema in properties.items():
        if name not in found and "default" in inner_schema:
            found[name] = _shaped(inner_schema, inner_schema["default"])
    return found


def _problems(schema: Schema, value: Any, field: str) -> Iterator[tuple[str, str]]:
    """Fields and what is wrong with them, in the words of the server."""
    if value is None and schema.get("nullable"):
        return
    kind = schema.get("type", "")
    if kind in _TYPES and not _TYPES[kind](value):
        yield field, f'Invalid value: "{_kind_of(value)}": {field} in body must be of type {kind}: "{_kind_of(value)}"'
        return
    if schema.get(_INT_OR_STRING) and not isinstance(value, int | str):
        yield field, f'Invalid value: "{_kind_of(value)}": {field} in body must be an integer or a string'
        return
    yield from _wrong_value(schema, value, field)
    if isinstance(value, dict):
        yield from _wrong_fields(schema, value, field)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(schema.get("items") or {}, item, f"{field}[{index}]")


def _wrong_value(schema: Schema, value: Any, field: str) -> Iterator[tuple[str, str]]:
    allowed = schema.get("enum")
    if allowed and value not in allowed:
        told = ", ".join(f'"{one}"' for one in allowed)
        yield field, f'Unsupported value: "{value}": supported values: {told}'
    if isinstance(value, int | float) and value < schema.get("minimum", value):
        least = schema["minimum"]
        yield field, f"Invalid value: {value}: {field} in body should be greater than or equal to {least}"
    if isinstance(value, int | float) and value > schema.get("maximum", value):
        yield field, f"Invalid value: {value}: {field} in body should be less than or equal to {schema['maximum']}"
    if schema.get("format") == "date-time" and isinstance(value, str) and not _DATE_TIME.match(value):
        yield field, f'Invalid value: "{value}": {field} in body must be of type date-time: "{value}"'
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield field, f"Invalid value: \"{value}\": {field} in body should match '{schema['pattern']}'"


def _wrong_fields(schema: Schema, value: Object, field: str) -> Iterator[tuple[str, str]]:
    dot = f"{field}." if field else ""
    for name in schema.get("required") or ():
        if name not in value:
            yield dot + name, "Required value"
    properties: dict[str, Schema] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    for name, inner in value.items():
        known = properties.get(name, others if isinstance(others, dict) else {})
        yield from _problems(known, inner, dot + name)


def _kind_of(value: Any) -> str:
    return next((name for name, fits in _TYPES.items() if fits(value)), "null")
