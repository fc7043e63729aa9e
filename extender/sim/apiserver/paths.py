"""URL paths of the API, parsed; and the discovery documents."""

from __future__ import annotations

from typing import Any

import msgspec

from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import Catalogue, Resource

VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_PARTS: dict[str, Any] = {"verbs": ["get", "patch", "update"]}
_SUBRESOURCES: dict[str, dict[str, Any]] = {
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
}
"""What discovery says of a subresource: `kubectl drain` evicts only where it finds the eviction of policy/v1."""
VERSION = {"major": "1", "minor": "34", "gitVersion": "v1.34.4-gangshare-sim", "platform": "python"}


class Target(msgspec.Struct, frozen=True):
    """The collection (no name), object or subresource that a path names."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


def parse(path: str, catalogue: Catalogue) -> Target | None:
    """The target of a path, or None if the server does not serve the path.

    Raises ApiError 404 for a subresource that a custom resource has not enabled.
    """
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    resource = catalogue.find(group, version, plural)
    if resource is None:
        return None
    if subresource and subresource not in resource.subresources:
        if resource.custom:  # the answer is that of a missing object
            raise errors.not_found(resource, name)
        return None
    if bool(namespace) != resource.namespaced and (namespace or name):
        return None
    return Target(resource, namespace, name, subresource)


def discovery(path: str, catalogue: Catalogue) -> dict[str, Any] | None:
    """The document of ``/version``, ``/api``, ``/apis``, a group or its resources; None for other paths."""
    parts = path.strip("/").split("/")
    groups = sorted({(r.group, r.version) for r in catalogue.all()})
    if parts == ["version"]:
        return VERSION
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if parts == ["apis"]:
        names = sorted({group for group, _ in groups if group})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name, groups) for name in names]}
    if parts[0] == "apis" and len(parts) == 2 and any(group == parts[1] for group, _ in groups):
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], groups)}
    wanted = ("", parts[1]) if parts[0] == "api" and len(parts) == 2 else tuple(parts[1:])
    if parts[0] not in ("api", "apis") or wanted not in groups:
        return None
    served = [r for r in catalogue.all() if (r.group, r.version) == wanted]
    name = "/".join(filter(None, wanted))
    entries = [entry for r in served for entry in _entries(r)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": entries}


def openapi(path: str, catalogue: Catalogue) -> dict[str, Any] | None:
    """The part of OpenAPI v3 that makes kubectl leave field validation to the server; None for other paths."""
    roots = {f"api{'s' if r.group else ''}/{r.api_version}" for r in catalogue.all()}
    wanted = path.strip("/").removeprefix("openapi/v3").strip("/")
    if not path.startswith("/openapi/v3") or (wanted and wanted not in roots):
        return None
    if not wanted:
        return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in sorted(roots)}}
    served = [r for r in catalogue.all() if wanted.endswith("/" + r.api_version)]
    return {"openapi": "3.0.0", "paths": {f"/{wanted}/{r.plural}/{{name}}": _patchable(r) for r in served}}


def _patchable(resource: Resource) -> dict[str, Any]:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    parameters = [{"name": "fieldValidation", "in": "query"}]
    return {"patch": {"parameters": parameters, "x-kubernetes-group-version-kind": kind}}


def _group(group: str, served: list[tuple[str, str]]) -> dict[str, Any]:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for name, version in served if name == group]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _entries(resource: Resource) -> list[dict[str, Any]]:
    base = {"singularName": resource.kind.lower(), "namespaced": resource.namespaced, "kind": resource.kind}
    main = {"name": resource.plural, **base, "verbs": VERBS, "shortNames": list(resource.short_names)}
    below = (
        {"name": f"{resource.plural}/{s}", **base, **_SUBRESOURCES.get(s, _PARTS)}
        for s in sorted(resource.subresources)
    )
    return [main, *below]
