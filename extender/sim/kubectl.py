"""A user's operations on a cluster."""

from __future__ import annotations

from extender.sim.apiserver import errors
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.patch import MERGE
from extender.sim.apiserver.resources import EVENTS, NODES, PODS, Object, Resource
from extender.sim.apiserver.store import Key

_WRITER = Writer("kubectl-create")


class Kubectl:
    """Creates, reads, patches and deletes objects of an ``Api`` in the same process."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def create(self, manifest: Object) -> Object:
        """Create an object, by default in namespace ``default``, and return it as stored."""
        resource = self._resource(manifest["apiVersion"], manifest["kind"])
        namespace = manifest.get("metadata", {}).get("namespace", "default") if resource.namespaced else ""
        return self.api.create(resource, namespace, manifest, _WRITER).obj

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        """An object of any kind; None if it does not exist or its kind is not served."""
        resource = self._served(api_version, kind)
        found = self.api.store.get(resource, _key(resource, namespace, name)) if resource else None
        return found.obj if found else None

    def items(self, api_version: str, kind: str, namespace: str) -> list[Object]:
        """The objects of a kind in a namespace, or all of a cluster-scoped kind; none if it is not served."""
        resource = self._served(api_version, kind)
        if resource is None:
            return []
        return [i.obj for i in self.api.store.items(resource, namespace if resource.namespaced else "")]

    def delete(self, api_version: str, kind: str, namespace: str, name: str) -> None:
        """Delete an object of any kind."""
        resource = self._resource(api_version, kind)
        self.api.delete(resource, _key(resource, namespace, name), {})

    def _served(self, api_version: str, kind: str) -> Resource | None:
        served = self.api.catalogue.all()
        return next((r for r in served if (r.api_version, r.kind) == (api_version, kind)), None)

    def _resource(self, api_version: str, kind: str) -> Resource:
        found = self._served(api_version, kind)
        if found is None:
            raise errors.ApiError(404, "NotFound", f'no matches for kind "{kind}" in version "{api_version}"')
        return found

    def patch(
        self, api_version: str, kind: str, namespace: str, name: str, body: Object, subresource: str = ""
    ) -> None:
        """Apply a JSON merge patch to an object of any kind, or to its status."""
        resource = self._resource(api_version, kind)
        key = _key(resource, namespace, name)
        self.api.patch(resource, key, body, MERGE, Writer(_WRITER.manager, subresource))

    def create_pod(self, manifest: Object) -> Object:
        """Create a pod, by default in namespace ``default``, and return it as stored."""
        return self.create({**manifest, **PODS.type_meta})

    def delete_pod(self, namespace: str, name: str, grace: int | None = None) -> None:
        """Delete a pod, with a grace period in seconds or the pod's own."""
        self.api.delete(PODS, (namespace, name), {} if grace is None else {"gracePeriodSeconds": grace})

    def pod(self, namespace: str, name: str) -> Object | None:
        found = self.api.store.get(PODS, (namespace, name))
        return found.obj if found else None

    def pods(self) -> list[Object]:
        return [i.obj for i in self.api.store.items(PODS)]

    def nodes(self) -> list[Object]:
        return [i.obj for i in self.api.store.items(NODES)]

    def events(self, namespace: str, name: str) -> list[Object]:
        """Events about objects with this name, oldest first."""
        found = [i.obj for i in self.api.store.items(EVENTS, namespace)]
        return [e for e in found if e["involvedObject"].get("name") == name]


def _key(resource: Resource, namespace: str, name: str) -> Key:
    return (namespace if resource.namespaced else "", name)
