"""Definitions of PodGroups, ours as shipped and others' as their projects have them, and objects of them."""

from pathlib import Path
from typing import Any

import yaml

from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import CRDS, Resource
from gangfilter import podgroups
from protos.contract import gpu_class, names
from tests.unit.extender_shell.world import ADMIN, Json

SHIPPED = Path(__file__).parents[3] / "manifests/base/extender/podgroup.yaml"
KINDS = {kind.api_version: kind for kind in podgroups.KINDS}
OWN, VOLCANO, COSCHEDULING = "gangshare.io/v1alpha1", "scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1"


def define(api: Api, kind: str, *, subresource: bool = True) -> None:
    """Install a kind, by API group and version."""
    if kind == OWN:
        api.create(CRDS, "", yaml.safe_load(SHIPPED.read_text()), ADMIN)
        return
    known = KINDS[kind]
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: Json = {"name": known.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    if subresource:
        version["subresources"] = {"status": {}}
    called = {"plural": known.plural, "kind": known.kind}
    spec = {"group": known.api_group, "scope": "Namespaced", "names": called, "versions": [version]}
    api.create(CRDS, "", {"metadata": {"name": _name(kind)}, "spec": spec}, ADMIN)


def undefine(api: Api, kind: str) -> None:
    """Remove a kind."""
    api.delete(CRDS, ("", _name(kind)), {})


def _name(kind: str) -> str:
    return f"{KINDS[kind].plural}.{KINDS[kind].api_group}"


def resource(api: Api, kind: str) -> Resource:
    known = KINDS[kind]
    found = api.catalogue.find(known.api_group, known.version, known.plural)
    assert found is not None
    return found


def add_group(api: Api, kind: str, name: str, /, **spec: Any) -> Json:
    """An object of this kind."""
    obj = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    return dict(api.create(resource(api, kind), "default", obj, ADMIN).obj)


def group(api: Api, kind: str, name: str) -> Json:
    """The object as it is now."""
    return dict(api.get(resource(api, kind), ("default", name)).obj)


# GpuClasses.

CLASSES = SHIPPED.with_name("gpuclass.yaml")


def define_classes(api: Api) -> None:
    """Install our GpuClass."""
    api.create(CRDS, "", yaml.safe_load(CLASSES.read_text()), ADMIN)


def undefine_classes(api: Api) -> None:
    """Remove it."""
    api.delete(CRDS, ("", f"{gpu_class.PLURAL}.{names.DOMAIN}"), {})


def _classes(api: Api) -> Resource:
    found = api.catalogue.find(names.DOMAIN, "v1alpha1", gpu_class.PLURAL)
    assert found is not None
    return found


def add_class(api: Api, name: str, /, **spec: Any) -> Json:
    """A class."""
    return dict(api.create(_classes(api), "", {"metadata": {"name": name}, "spec": spec}, ADMIN).obj)


def edit_class(api: Api, name: str, /, **spec: Any) -> None:
    """Set fields of a class."""
    api.patch(_classes(api), ("", name), {"spec": spec}, "application/merge-patch+json", ADMIN)


def delete_class(api: Api, name: str) -> None:
    """Remove a class."""
    api.delete(_classes(api), ("", name), {})


def class_status(api: Api, name: str) -> Json:
    """The status of a class as it is now."""
    return dict(api.get(_classes(api), ("", name)).obj.get("status", {}))
