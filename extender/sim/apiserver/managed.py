"""managedFields: the last writer of each annotation, label and field.

The tracked fields are metadata.annotations.*, metadata.labels.*, and one level of each other section (spec.*, status.*,
data.*). A write that changes a field takes it from all other managers, as the real server does for operation Update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from extender.sim import podspec
from extender.sim.apiserver.resources import Object

Path = tuple[str, ...]


class Writer(msgspec.Struct, frozen=True):
    """The manager's name and the subresource through which it writes."""

    manager: str
    subresource: str = ""


def fields_of(obj: Object) -> dict[Path, Any]:
    """The tracked fields of an object with their values."""
    found: dict[Path, Any] = {}
    metadata = obj.get("metadata", {})
    for section in ("annotations", "labels"):
        for key, value in (metadata.get(section) or {}).items():
            found[("metadata", section, key)] = value
    for section, value in obj.items():
        if section in ("kind", "apiVersion", "metadata"):
            continue
        if isinstance(value, dict):
            for key, inner in value.items():
                found[(section, key)] = inner
        else:
            found[(section,)] = value
    return found


def _decode(fields: Mapping[str, Any], above: Path = ()) -> set[Path]:
    paths: set[Path] = set()
    for name, inner in fields.items():
        if name.startswith("f:"):
            path = (*above, name[2:])
            paths |= _decode(inner, path) if inner else {path}
    return paths


def _encode(paths: set[Path]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path in sorted(paths):
        place = root
        for part in path:
            place = place.setdefault("f:" + part, {})
    return root


def track(
    entries: list[dict[str, Any]],
    old: Mapping[Path, Any],
    new: Mapping[Path, Any],
    writer: Writer,
    api_version: str,
) -> list[dict[str, Any]]:
    """The managedFields after ``writer`` has replaced the fields ``old`` by ``new``."""
    written = {path for path, value in new.items() if path not in old or old[path] != value}
    gone = old.keys() - new.keys()
    if not written and not gone:
        return entries
    result: list[dict[str, Any]] = []
    mine: set[Path] = set()
    for entry in entries:
        paths = _decode(entry["fieldsV1"])
        if Writer(entry["manager"], entry.get("subresource", "")) == writer:
            mine = paths
            continue
        left = paths - written - gone
        if left == paths:
            result.append(entry)
        elif left:
            result.append({**entry, "fieldsV1": _encode(left)})
    if fields := (mine | written) - gone:
        entry = {
            "manager": writer.manager,
            "operation": "Update",
            "apiVersion": api_version,
            "time": podspec.timestamp(),
            "fieldsType": "FieldsV1",
            "fieldsV1": _encode(fields),
        }
        result.append({**entry, "subresource": writer.subresource} if writer.subresource else entry)
    return result
