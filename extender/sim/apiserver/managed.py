"""managedFields: who wrote which annotation, label and section last.

Tracked are metadata.annotations.*, metadata.labels.*, and the fields one level below each other section (spec.*,
status.*, data.*): enough to tell whose an edit was. A write that changes a field takes it from all other managers, as
the real server does for operation Update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from extender.sim.apiserver.resources import Object

Path = tuple[str, ...]
_METADATA = ("annotations", "labels")


class Writer(msgspec.Struct, frozen=True):
    """Who writes: the manager's name, the operation and through which subresource."""

    manager: str
    subresource: str = ""
    operation: str = "Update"


def fields_of(obj: Object) -> dict[Path, Any]:
    """The tracked fields of an object with their values."""
    found: dict[Path, Any] = {}
    metadata = obj.get("metadata", {})
    for section in _METADATA:
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


def _owner(entry: Mapping[str, Any]) -> Writer:
    return Writer(entry["manager"], entry.get("subresource", ""), entry["operation"])


def owned_by(entries: list[dict[str, Any]], writer: Writer) -> set[Path]:
    """The fields that ``writer`` owns."""
    return {path for e in entries if _owner(e) == writer for path in _decode(e["fieldsV1"])}


def others_owning(entries: list[dict[str, Any]], writer: Writer, paths: set[Path]) -> dict[Path, str]:
    """Of ``paths``, those another manager owns, with its name."""
    return {
        path: e["manager"] for e in entries if e["manager"] != writer.manager for path in _decode(e["fieldsV1"]) & paths
    }


def track(
    entries: list[dict[str, Any]],
    old: Mapping[Path, Any],
    new: Mapping[Path, Any],
    writer: Writer,
    api_version: str,
    now: str,
) -> list[dict[str, Any]]:
    """The managedFields after ``writer`` turned the fields ``old`` into ``new`` at the time ``now``."""
    written = {path for path, value in new.items() if path not in old or old[path] != value}
    gone = old.keys() - new.keys()
    if not written and not gone:
        return entries
    result: list[dict[str, Any]] = []
    mine: set[Path] = set()
    for entry in entries:
        paths = _decode(entry["fieldsV1"])
        if _owner(entry) == writer:
            mine = paths
            continue
        left = paths - written - gone
        if left == paths:
            result.append(entry)
        elif left:
            result.append({**entry, "fieldsV1": _encode(left)})
    if fields := (mine | written) - gone:
        result.append(_entry(writer, fields, api_version, now))
    return result


def _entry(writer: Writer, fields: set[Path], api_version: str, now: str) -> dict[str, Any]:
    entry = {
        "manager": writer.manager,
        "operation": writer.operation,
        "apiVersion": api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": _encode(fields),
    }
    return {**entry, "subresource": writer.subresource} if writer.subresource else entry
