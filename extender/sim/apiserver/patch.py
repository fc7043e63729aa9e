"""The patch formats of the API: merge and strategic merge.

Pure: each returns a new object, which shares unchanged parts with the old one.
"""

from __future__ import annotations

from typing import Any

from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import Object

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

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


def apply(content_type: str, current: Object, patch: Any) -> Object:
    """The patched object; raises ApiError 415 for an unknown content type, 400 for a patch of the wrong shape."""
    if not isinstance(patch, dict):
        raise errors.bad_request(f"a patch must be an object, got {type(patch).__name__}")
    if content_type == STRATEGIC:
        return _strategic_object(current, patch)
    if content_type == MERGE:
        return merge(current, patch)  # type: ignore[no-any-return]  # an object merged with an object
    raise errors.ApiError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {MERGE}, {STRATEGIC}",
    )
