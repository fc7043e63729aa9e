"""URL paths of objects and collections on the API server."""

import re
from urllib.parse import quote

_plain = re.compile(r"[A-Za-z0-9_.~-]+").fullmatch
"""Needs no quoting, like nearly all names."""


def path(group_version: str, plural: str, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of a collection (no name), an object, or one of its subresources.

    `group_version` is "v1" for core, otherwise like "coordination.k8s.io/v1". The namespace is empty for cluster-scoped
    objects and for collections over all namespaces.
    """
    parts = ["api" if group_version == "v1" else "apis", *group_version.split("/")]
    if namespace:
        parts += ["namespaces", namespace]
    parts += [part for part in (plural, name, subresource) if part]
    return "/" + "/".join([part if _plain(part) else quote(part, safe="") for part in parts])


def pods(namespace: str = "") -> str:
    """The pods of a namespace, or of all namespaces."""
    return path("v1", "pods", namespace=namespace)


def pod(namespace: str, name: str, subresource: str = "") -> str:
    """A pod, or its `status`, `binding` or `eviction`."""
    return path("v1", "pods", namespace=namespace, name=name, subresource=subresource)


def nodes() -> str:
    """All nodes."""
    return path("v1", "nodes")


def node(name: str, subresource: str = "") -> str:
    """A node, or its `status`."""
    return path("v1", "nodes", name=name, subresource=subresource)
