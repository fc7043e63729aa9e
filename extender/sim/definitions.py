"""Minimal CustomResourceDefinitions, for an API server that validates nothing."""

from __future__ import annotations

from collections.abc import Sequence

from extender.sim.podspec import Object


def definition(api_version: str, kind: str, plural: str, *, namespaced: bool, columns: Sequence[Object] = ()) -> Object:
    """A definition that accepts any spec and status; status is a subresource. `kubectl get` shows these columns."""
    group, _, version = api_version.partition("/")
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}}
    served = {"name": version, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    served["additionalPrinterColumns"] = list(columns)
    called = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": called,
            "versions": [served],
        },
    }
