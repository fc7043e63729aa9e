"""The resources that the server serves: built-in ones, and custom ones by registration."""

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
    custom: bool = False
    """Defined by a CustomResourceDefinition. Writes of its status do not change its metadata."""
    unconditional_update: bool = True
    """Accepts a PUT without resourceVersion."""
    schema: Object = {}
    """The structural schema of a custom resource."""
    columns: tuple[Object, ...] = ()
    """The additionalPrinterColumns of a custom resource."""

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

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.version, self.plural


def _status(*more: str) -> frozenset[str]:
    return frozenset({"status", *more})


PODS = Resource("", "v1", "pods", "Pod", True, _status("binding", "eviction", "log"), ("po",))
NODES = Resource("", "v1", "nodes", "Node", False, _status(), ("no",))
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, _status(), ("ns",))
EVENTS = Resource("", "v1", "events", "Event", True, frozenset(), ("ev",))
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap", True, frozenset(), ("cm",))
SECRETS = Resource("", "v1", "secrets", "Secret")
PODTEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
RESOURCEQUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", True, _status(), ("quota",))
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", unconditional_update=False)
PDBS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, _status(), ("pdb",))
JOBS = Resource("batch", "v1", "jobs", "Job", True, _status())
PRIORITYCLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, frozenset(), ("pc",))
WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)
APISERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", False)
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, _status(), ("crd",)
)

BUILT_IN = tuple(value for value in list(globals().values()) if isinstance(value, Resource))
"""All resources above."""


class Catalogue:
    """The served resources by (group, version, plural)."""

    def __init__(self) -> None:
        self._served = {r.key: r for r in BUILT_IN}

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._served.get((group, version, plural))

    def all(self) -> list[Resource]:
        return list(self._served.values())

    def serves(self, resource: Resource) -> bool:
        return resource.key in self._served

    def register(self, definition: Object) -> None:
        """Add each served version of a CustomResourceDefinition."""
        spec, names = definition["spec"], definition["spec"]["names"]
        for version in spec["versions"]:
            if version.get("served", True):
                resource = Resource(
                    spec["group"],
                    version["name"],
                    names["plural"],
                    names["kind"],
                    spec.get("scope", "Namespaced") == "Namespaced",
                    frozenset(version.get("subresources") or {}),
                    tuple(names.get("shortNames", ())),
                    custom=True,
                    unconditional_update=False,
                    schema=version["schema"]["openAPIV3Schema"],
                    columns=tuple(version.get("additionalPrinterColumns") or ()),
                )
                self._served[resource.key] = resource

    def unregister(self, definition: Object) -> list[Resource]:
        """Remove the resources of a CustomResourceDefinition, and return them."""
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        removed = [r for r in self._served.values() if r.custom and (r.group, r.plural) == (group, plural)]
        for resource in removed:
            del self._served[resource.key]
        return removed
