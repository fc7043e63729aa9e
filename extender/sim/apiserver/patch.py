"""The patch formats of the API: merge, strategic merge, JSON patch (RFC 6902; without move and copy).

Pure: each returns a new object, which shares unchanged parts with the old one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import Object

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"

# Merge keys of lists in strategic patches, by field. Source: k8s.io/api, struct tags patchMergeKey.
_MERGE_KEYS = {
    "conditions": "type",
    "addresses": "type",
    "taints": "key",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "schedulingGates": "name",
    "imagePullSecrets": "name",
    "webhooks": "name",
    "ownerReferences": "uid",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "podIPs": "ip",
    "hostIPs": "ip",
}
_MERGE_SETS = ("finalizers",)


def merge(target: Any, patch: Any) -> Any:
    """Merge patch (RFC 7386): null deletes, objects merge, other values replace."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any, field: str = "") -> Any:
    """Strategic merge patch: as ``merge``, with ``$patch`` directives; known lists merge by their key."""
    if isinstance(patch, dict):
        return _strategic_object(target if isinstance(target, dict) else {}, patch)
    if isinstance(patch, list) and field in _MERGE_KEYS:
        return _strategic_list(target or [], patch, _MERGE_KEYS[field])
    if isinstance(patch, list) and field in _MERGE_SETS:
        return [*(target or []), *(v for v in patch if v not in (target or []))]
    return patch


def _strategic_object(target: Object, patch: Object) -> Object:
    if patch.get("$patch") == "replace":
        return {k: v for k, v in patch.items() if k != "$patch"}
    result = dict(target)
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            result[field] = [v for v in result.get(field, ()) if v not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = strategic(result.get(key), value, key)
    return result


def _strategic_list(target: list[Any], patch: list[Any], merge_key: str) -> list[Any]:
    if any(entry.get("$patch") == "replace" for entry in patch):
        return [entry for entry in patch if "$patch" not in entry]
    result = {entry[merge_key]: entry for entry in target}
    for entry in patch:
        if merge_key not in entry:
            raise errors.bad_request(f"map: {entry} does not contain declared merge key: {merge_key}")
        if entry.get("$patch") == "delete":
            result.pop(entry[merge_key], None)
        else:
            result[entry[merge_key]] = strategic(result.get(entry[merge_key], {}), entry)
    return list(result.values())


def json_patch(target: Object, operations: list[dict[str, Any]]) -> Object:
    """JSON patch (RFC 6902); raises ApiError 422, as the real server, for an operation that cannot be applied."""
    result = msgspec.json.decode(msgspec.json.encode(target))
    for operation in operations:
        try:
            result = _apply_operation(result, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            message = f"the server rejected our request due to an error in our request: {operation}"
            raise errors.ApiError(422, "Invalid", message) from error
    return result  # type: ignore[no-any-return]  # decoded JSON


def _pointer(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise ValueError(f"JSON pointer {path!r} does not begin with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _lookup(document: Any, parts: list[str]) -> Any:
    for part in parts:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _apply_operation(document: Any, operation: dict[str, Any]) -> Any:
    op, parts = operation["op"], _pointer(operation["path"])
    if op == "test":
        if _lookup(document, parts) != operation["value"]:
            raise ValueError("test failed")
        return document
    if op not in ("add", "replace", "remove"):
        raise ValueError(f"unknown operation {op!r}")
    value = operation.get("value")
    if not parts:
        return value
    parent: Any = _lookup(document, parts[:-1])
    key: Any = parts[-1]
    if isinstance(parent, list):
        key = len(parent) if key == "-" else int(key)
    if op == "remove":
        del parent[key]
    elif op == "add" and isinstance(parent, list):
        parent.insert(key, value)
    elif op == "replace" and isinstance(parent, dict) and key not in parent:
        raise KeyError(key)
    else:
        parent[key] = value
    return document


def apply(content_type: str, current: Object, patch: Any) -> Object:
    """The patched object; raises ApiError 415 for an unknown content type, 400 for a patch of the wrong shape."""
    if content_type == JSON:
        if not isinstance(patch, list):
            raise errors.bad_request(f"a JSON patch must be a list of operations, got {type(patch).__name__}")
        return json_patch(current, patch)
    if not isinstance(patch, dict):
        raise errors.bad_request(f"a patch must be an object, got {type(patch).__name__}")
    if content_type == STRATEGIC:
        return _strategic_object(current, patch)
    if content_type == MERGE:
        return merge(current, patch)  # type: ignore[no-any-return]  # an object merged with an object
    raise errors.ApiError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        f"{JSON}, {MERGE}, {STRATEGIC}",
    )
