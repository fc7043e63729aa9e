"""The catalogue of resources the server knows, and registration of custom ones."""

from __future__ import annotations

from typing import Any

import msgspec

Object = dict[str, Any]


class Resource(msgspec.Struct, frozen=True):
    """One resource of one API version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    subresources: frozenset[str] = frozenset()
    short_names: tuple[str, ...] = ()
    custom: bool = False  # defined by a CustomResourceDefinition: a status write leaves its metadata alone
    unconditional_update: bool = True  # may a PUT come without resourceVersion

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``plural.group``, as error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def type_meta(self) -> dict[str, str]:
        return {"kind": self.kind, "apiVersion": self.api_version}


def _status(*more: str) -> frozenset[str]:
    return frozenset({"status", *more})


PODS = Resource("", "v1", "pods", "Pod", True, _status("binding", "eviction", "log"), ("po",))
NODES = Resource("", "v1", "nodes", "Node", False, _status(), ("no",))
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, _status(), ("ns",))
EVENTS = Resource("", "v1", "events", "Event", True, frozenset(), ("ev",))
NEW_EVENTS = Resource("events.k8s.io", "v1", "events", "Event", True, frozenset(), ("ev",))
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap", True, frozenset(), ("cm",))
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICEACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, frozenset(), ("sa",))
RESOURCEQUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", True, _status(), ("quota",))
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", unconditional_update=False)
PDBS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, _status(), ("pdb",))
PRIORITYCLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, frozenset(), ("pc",))
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, _status(), ("crd",)
)

BUILT_IN = (
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    NEW_EVENTS,
    CONFIGMAPS,
    SECRETS,
    SERVICEACCOUNTS,
    RESOURCEQUOTAS,
    LEASES,
    PDBS,
    PRIORITYCLASSES,
    CRDS,
)


class Catalogue:
    """Resources by (group, version, plural)."""

    def __init__(self) -> None:
        self._known = {(r.group, r.version, r.plural): r for r in BUILT_IN}

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._known.get((group, version, plural))

    def all(self) -> list[Resource]:
        return list(self._known.values())

    def register(self, definition: Object) -> None:
        """Add what a CustomResourceDefinition defines: each served version."""
        spec = definition["spec"]
        names = spec["names"]
        for version in spec["versions"]:
            if version.get("served", True):
                resource = Resource(
                    spec["group"],
                    version["name"],
                    spec["names"]["plural"],
                    names["kind"],
                    spec.get("scope", "Namespaced") == "Namespaced",
                    frozenset(version.get("subresources", {})),
                    tuple(names.get("shortNames", ())),
                    custom=True,
                    unconditional_update=False,
                )
                self._known[(resource.group, resource.version, resource.plural)] = resource

    def unregister(self, definition: Object) -> None:
        """Forget what a CustomResourceDefinition defined."""
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        self._known = {k: r for k, r in self._known.items() if (r.group, r.plural) != (group, plural)}
