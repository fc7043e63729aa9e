"""Structural schemas of custom resources: prune unknown fields, set defaults, validate. Pure.

Source: apiextensions.k8s.io/v1, OpenAPI v3 without references. CEL rules (``x-kubernetes-validations``) and the
logical keywords (``anyOf``, ``not``) are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from extender.sim.apiserver import errors, printers
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


def admitted(resource: Resource, obj: Object) -> Object:
    """The pruned and defaulted object; raises ApiError 422 for the first invalid field."""
    kept = {name: obj[name] for name in _KEPT_AT_ROOT if name in obj}
    rest = {name: value for name, value in obj.items() if name not in kept}
    properties = {n: s for n, s in (resource.schema.get("properties") or {}).items() if n not in _KEPT_AT_ROOT}
    schema = {**resource.schema, "properties": properties}
    body = _shaped(schema, rest)
    for field, why in _problems(schema, body, ""):
        raise errors.invalid(resource, obj["metadata"]["name"], field, why)
    return {**kept, **body}


def check_definition(definition: Object) -> None:
    """Raise ApiError 422 if a version of a CustomResourceDefinition has no schema, or columns without a known path."""
    for index, version in enumerate(definition["spec"]["versions"]):
        if "openAPIV3Schema" not in (version.get("schema") or {}):
            field = f"spec.versions[{index}].schema.openAPIV3Schema"
            raise errors.invalid(CRDS, definition["metadata"]["name"], field, "Required value: schemas are required")
        for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
            if printers.steps(column.get("jsonPath", "")) is None:
                field = f"spec.versions[{index}].additionalPrinterColumns[{number}].jsonPath"
                why = f'Invalid value: "{column.get("jsonPath", "")}": is an invalid JSON path'
                raise errors.invalid(CRDS, definition["metadata"]["name"], field, why)


def _shaped(schema: Schema, value: Any) -> Any:
    """The value without unknown fields, with defaults."""
    if isinstance(value, list):
        return [_shaped(schema.get("items") or {}, item) for item in value]
    if not isinstance(value, dict) or not schema:
        return value
    properties: dict[str, Schema] = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    shaped: Object = {}
    for name, inner in value.items():
        if name in properties:
            if inner is not None or properties[name].get("nullable"):
                shaped[name] = _shaped(properties[name], inner)
        elif isinstance(others, dict):
            shaped[name] = _shaped(others, inner)
        elif others or schema.get(_PRESERVE):
            shaped[name] = inner
    for name, inner_schema in properties.items():
        if name not in shaped and "default" in inner_schema:
            shaped[name] = _shaped(inner_schema, inner_schema["default"])
    return shaped


def _problems(schema: Schema, value: Any, field: str) -> Iterator[tuple[str, str]]:
    """Each invalid field with the message of the real server."""
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
        supported = ", ".join(f'"{each}"' for each in allowed)
        yield field, f'Unsupported value: "{value}": supported values: {supported}'
    if isinstance(value, int | float):
        should = f"Invalid value: {value}: {field} in body should be"
        if value < schema.get("minimum", value):
            yield field, f"{should} greater than or equal to {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield field, f"{should} less than or equal to {schema['maximum']}"
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
        yield from _problems(properties.get(name, others if isinstance(others, dict) else {}), inner, dot + name)


def _kind_of(value: Any) -> str:
    return next((name for name, fits in _TYPES.items() if fits(value)), "null")
