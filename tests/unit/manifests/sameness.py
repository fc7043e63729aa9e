"""When two installations are the same, though helm made one and kustomize the other."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import yaml

from tests.unit.manifests.conftest import Json, Objects

OF_HELM = (
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "checksum/config",
    "helm.sh/chart",
    "helm.sh/resource-policy",
)
"""Labels and annotations that say how an object was installed, not what it does."""
HASHED = re.compile(r"^(gangshare-scheduler)-[a-z0-9]{10}$")
"""A ConfigMap that kustomize names by its content."""


def plain(objects: Objects, *, image_tags: bool = True) -> dict[str, Json]:
    """What an installation does: objects by kind and name, lists in an order that means nothing sorted."""
    found = {}
    for given in objects.all:
        if given["kind"] != "Namespace":  # helm makes it, and takes no part in it
            one = _plain(copy.deepcopy(given), image_tags=image_tags)
            metadata = one["metadata"]
            found[f"{one['kind']} {metadata.get('namespace', '')}/{metadata['name']}"] = one
    return found


def _plain(one: Json, *, image_tags: bool) -> Json:
    _unmark(one["metadata"])
    if one["kind"] == "ConfigMap":
        one["metadata"]["name"] = HASHED.sub(r"\1", one["metadata"]["name"])
        one["data"] = {file: yaml.safe_load(text) for file, text in one["data"].items()}
    if one["kind"] in ("DaemonSet", "Deployment"):
        _unmark(one["spec"]["template"]["metadata"])
        _sort(one["spec"]["template"]["spec"], image_tags=image_tags)
    return one


def _unmark(metadata: Json) -> None:
    for field in ("labels", "annotations"):
        metadata[field] = {key: value for key, value in metadata.get(field, {}).items() if key not in OF_HELM}


def _sort(spec: Json, *, image_tags: bool) -> None:
    for volume in spec.get("volumes", []):
        if "configMap" in volume:
            volume["configMap"]["name"] = HASHED.sub(r"\1", volume["configMap"]["name"])
    spec["volumes"] = _sorted(spec.get("volumes"))
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        for field in ("args", "env", "ports", "volumeMounts"):
            container[field] = _sorted(container.get(field))
        if not image_tags:
            container["image"] = container["image"].partition(":")[0]


def _sorted(given: list[Any] | None) -> list[Any]:
    return sorted(given or [], key=lambda one: json.dumps(one, sort_keys=True))
