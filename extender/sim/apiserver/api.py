"""The API server's operations on objects. Synchronous: each call is one atomic write (or read) of the store.

The callers are the HTTP server, and the scheduler and the kubelets of the same process. The store shares its objects
with the callers: never modify an object that was passed in or returned.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from extender.sim import podspec
from extender.sim.apiserver import disruption, errors, managed, metadata, patch, pods, quota, schema
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import (
    CRDS,
    NAMESPACES,
    PDBS,
    PODS,
    PRIORITYCLASSES,
    RESOURCEQUOTAS,
    Catalogue,
    Object,
    Resource,
)
from extender.sim.apiserver.store import Item, Key, Store

_EVICTION = Writer("EvictionByEvictionAPI", "status")
_CRD_CONTROLLER = Writer("kube-apiserver", "status")
_QUOTA_CONTROLLER = Writer("kube-controller-manager", "status")


class Api:
    """All operations."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.catalogue = Catalogue()
        self.log_of: Callable[[Object, str], str] = lambda _pod, _container: ""
        self.admit: Callable[[Object], Object] = lambda pod: pod
        """Mutates new pods, in place of an admission policy."""
        self._random = Random(0)  # of generated names
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.create(NAMESPACES, "", {"metadata": {"name": name}}, Writer("kube-apiserver"))

    def get(self, resource: Resource, key: Key) -> Item:
        item = self.store.get(resource, key)
        if item is None:
            raise errors.not_found(resource, key[1])
        return item

    def create(self, resource: Resource, namespace: str, obj: Object, writer: Writer) -> Item:
        """Store a new object; its name may come from generateName."""
        if namespace and not self.store.get(NAMESPACES, ("", namespace)):
            raise errors.not_found(NAMESPACES, namespace)
        meta = metadata.new(resource, namespace, obj.get("metadata") or {}, self._random)
        new = {"metadata": meta, **{k: v for k, v in obj.items() if k not in ("kind", "apiVersion", "metadata")}}
        key = (namespace, meta["name"])
        if self.store.get(resource, key):
            raise errors.already_exists(resource, meta["name"])
        if resource is PODS:
            new = pods.prepare(self.admit(self._with_priority(new)))
            for item in self.store.items(RESOURCEQUOTAS, namespace):
                quota.check(item.obj, (each.obj for each in self.store.items(PODS, namespace)), new)
        elif resource is NAMESPACES:
            new["status"] = {"phase": "Active"}
        elif "status" in resource.subresources:
            new.pop("status", None) if resource.custom else new.setdefault("status", {})
        if resource is CRDS:
            schema.check_definition(new)
        elif resource.custom:
            new = schema.admitted(resource, new)
        fields = managed.fields_of({k: v for k, v in new.items() if k != "status"})
        meta["managedFields"] = managed.track([], {}, fields, writer, resource.api_version)
        item = self.store.put(resource, key, new)
        self._recount(resource, namespace)
        if resource is CRDS:
            self._establish(item)
        return item

    def _establish(self, definition: Item) -> None:
        """Serve the resource, and say so in the definition."""
        self.catalogue.register(definition.obj)
        established = podspec.turned(definition.obj, "Established", "True", "InitialNamesAccepted")
        self._write(CRDS, definition, {**definition.obj, "status": {"conditions": [established]}}, _CRD_CONTROLLER)

    def _with_priority(self, pod: Object) -> Object:
        name = (pod.get("spec") or {}).get("priorityClassName")
        if not name:
            return pod
        found = self.store.get(PRIORITYCLASSES, ("", name))
        if found is None:
            raise errors.forbidden(PODS, pod["metadata"]["name"], f"no PriorityClass with name {name} was found")
        return {**pod, "spec": {**pod["spec"], "priority": found.obj["value"]}}

    def update(self, resource: Resource, key: Key, obj: Object, writer: Writer) -> Item:
        """Replace an object, or its status if the writer writes through subresource ``status``."""
        old = self.get(resource, key)
        meta = obj.get("metadata") or {}
        if meta.get("name") != key[1]:
            raise errors.bad_request(
                f"the name of the object ({meta.get('name')}) does not match the name on the URL ({key[1]})"
            )
        if not meta.get("resourceVersion") and not resource.unconditional_update:
            raise errors.invalid(
                resource, key[1], "metadata.resourceVersion", "Invalid value: 0x0: must be specified for an update"
            )
        return self._write(resource, old, obj, writer)

    def patch(self, resource: Resource, key: Key, body: Any, content_type: str, writer: Writer) -> Item:
        if content_type == patch.STRATEGIC and resource.custom:
            raise errors.ApiError(
                415, "UnsupportedMediaType", "strategic merge patch is not supported for custom resources"
            )
        old = self.get(resource, key)
        new = patch.apply(content_type, old.obj, body)
        uid = new["metadata"].get("uid")
        if uid != old.obj["metadata"]["uid"]:
            raise errors.invalid(resource, key[1], "metadata.uid", f'Invalid value: "{uid}": field is immutable')
        return self._write(resource, old, new, writer)

    def _write(self, resource: Resource, old: Item, new: Object, writer: Writer) -> Item:
        """Replace ``old`` except fields that this (sub)resource may not write; skip a write without change."""
        before = old.obj
        metadata.check(resource, old.key, new.get("metadata") or {}, before["metadata"])
        meta = metadata.kept(resource, before["metadata"], new.get("metadata") or {}, writer.subresource)
        if writer.subresource == "status":
            merged = {**before, "metadata": meta, "status": new.get("status", {})}
        else:
            merged = {k: v for k, v in new.items() if k not in ("kind", "apiVersion")} | {"metadata": meta}
            if "status" in resource.subresources and "status" in before:
                merged["status"] = before["status"]
            if resource is PODS:
                pods.check_update(before, merged)
        if resource.custom:
            merged = schema.admitted(resource, merged)
        if merged == before:
            return old
        if merged.get("spec") != before.get("spec") and (resource.custom or resource is PODS):
            meta["generation"] = meta.get("generation", 1) + 1
        meta["managedFields"] = managed.track(
            meta.get("managedFields") or [],
            managed.fields_of(before),
            managed.fields_of(merged),
            writer,
            resource.api_version,
        )
        item = self.store.put(resource, old.key, merged)
        freed = before["metadata"].get("finalizers") and not meta.get("finalizers")
        if freed and podspec.terminating(merged) and not meta.get("deletionGracePeriodSeconds"):
            item = self.store.remove(resource, old.key)
        self._recount(resource, old.key[0])
        return item

    def bind(self, key: Key, binding: Object) -> None:
        """pods/binding: write node, annotations and PodScheduled at once, without a managedFields entry."""
        wanted = binding.get("metadata") or {}
        target = binding.get("target") or {}
        if wanted.get("name", key[1]) != key[1]:
            raise errors.bad_request(f"name in URL does not match name in Binding object: {key[1]} != {wanted['name']}")
        if target.get("kind", "Node") not in ("", "Node") or not target.get("name"):
            raise errors.ApiError(500, "InternalError", f"Internal error occurred: invalid binding target {target}")
        old = self.get(PODS, key)
        metadata.check(PODS, key, wanted, old.obj["metadata"])
        new = pods.bound(old.obj, target["name"], wanted.get("annotations") or {})
        self.store.put(PODS, key, {**new, "metadata": dict(new["metadata"])})

    def evict(self, key: Key, eviction: Object) -> None:
        """pods/eviction: check the PodDisruptionBudgets, set the condition DisruptionTarget, delete the pod."""
        if (eviction.get("metadata") or {}).get("name", key[1]) != key[1]:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        old, options = self.get(PODS, key), eviction.get("deleteOptions") or {}
        siblings = (i.obj for i in self.store.items(PODS, key[0]))
        disruption.check(old.obj, (i.obj for i in self.store.items(PDBS, key[0])), siblings)
        metadata.check(PODS, key, options.get("preconditions") or {}, old.obj["metadata"])
        condition = podspec.turned({}, "DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting")
        marked = patch.apply(patch.STRATEGIC, old.obj, {"status": {"conditions": [condition]}})
        self._write(PODS, old, marked, _EVICTION)
        self.delete(PODS, key, {**options, "preconditions": {}})

    def delete(self, resource: Resource, key: Key, options: Object) -> Item:
        """Delete an object, a pod gracefully; return its last state."""
        old = self.get(resource, key)
        meta = old.obj["metadata"]
        metadata.check(resource, key, options.get("preconditions") or {}, meta)
        marked = pods.deletion(old.obj, options.get("gracePeriodSeconds")) if resource is PODS else None
        if marked is None and meta.get("finalizers"):
            if meta.get("deletionGracePeriodSeconds") == 0:
                return old
            stamp = {"deletionTimestamp": podspec.timestamp(), "deletionGracePeriodSeconds": 0}
            marked = {**old.obj, "metadata": {**meta, **stamp}}
        if marked is None:
            return self._remove(resource, key)
        return old if marked is old.obj else self.store.put(resource, key, marked)

    def _remove(self, resource: Resource, key: Key) -> Item:
        item = self.store.remove(resource, key)
        if resource is NAMESPACES:
            for other in self.catalogue.all():
                for inside in self.store.items(other, key[1]) if other.namespaced else ():
                    self.store.remove(other, inside.key)
        if resource is CRDS:
            self._undefine(item.obj)
        self._recount(resource, key[0])
        return item

    def _undefine(self, definition: Object) -> None:
        """Remove the resource with its objects, and end its watches."""
        for resource in self.catalogue.unregister(definition):
            for item in self.store.items(resource):
                self.store.remove(resource, item.key)
            self.store.wake(resource)

    def _recount(self, resource: Resource, namespace: str) -> None:
        """Update status.used of the namespace's quotas."""
        if resource is not PODS and resource is not RESOURCEQUOTAS:
            return
        for item in self.store.items(RESOURCEQUOTAS, namespace):
            used = quota.used(item.obj, (each.obj for each in self.store.items(PODS, namespace)))
            status = {"hard": item.obj["spec"]["hard"], "used": used}
            if item.obj.get("status") != status:
                self._write(RESOURCEQUOTAS, item, {**item.obj, "status": status}, _QUOTA_CONTROLLER)
