"""What a user does with a cluster: pods made, deleted and looked at."""

from __future__ import annotations

from extender.sim.apiserver import errors
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.patch import MERGE
from extender.sim.apiserver.resources import EVENTS, NODES, PODS, Object, Resource

_WRITER = Writer("kubectl-create")


class Kubectl:
    """A user of an ``Api`` in the same process."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def create(self, manifest: Object) -> Object:
        """Create an object (in namespace ``default`` when it needs one and names none) and give it back as stored."""
        resource = self._resource(manifest["apiVersion"], manifest["kind"])
        return self.api.create(resource, self._namespace(resource, manifest), manifest, _WRITER).obj

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        """An object of any kind; None when there is none, or when its kind is not served."""
        resource = self._served(api_version, kind)
        if resource is None:
            return None
        found = self.api.store.get(resource, (namespace if resource.namespaced else "", name))
        return found.obj if found else None

    def items(self, api_version: str, kind: str, namespace: str) -> list[Object]:
        """The objects of a kind in a namespace (all, of a kind without); none when it is not served."""
        resource = self._served(api_version, kind)
        return (
            [i.obj for i in self.api.store.items(resource, namespace if resource.namespaced else "")]
            if resource
            else []
        )

    def delete(self, api_version: str, kind: str, namespace: str, name: str) -> None:
        """Ask for the deletion of an object of any kind."""
        resource = self._resource(api_version, kind)
        self.api.delete(resource, (namespace if resource.namespaced else "", name), {})

    def _served(self, api_version: str, kind: str) -> Resource | None:
        known = self.api.catalogue.all()
        return next((r for r in known if (r.api_version, r.kind) == (api_version, kind)), None)

    def _resource(self, api_version: str, kind: str) -> Resource:
        found = self._served(api_version, kind)
        if found is None:
            raise errors.ApiError(404, "NotFound", f'no matches for kind "{kind}" in version "{api_version}"')
        return found

    @staticmethod
    def _namespace(resource: Resource, manifest: Object) -> str:
        namespace: str = manifest.get("metadata", {}).get("namespace", "default")
        return namespace if resource.namespaced else ""

    def patch(
        self, api_version: str, kind: str, namespace: str, name: str, body: Object, subresource: str = ""
    ) -> None:
        """A JSON merge patch of an object of any kind, or of its status."""
        resource = self._resource(api_version, kind)
        key = (namespace if resource.namespaced else "", name)
        self.api.patch(resource, key, body, MERGE, Writer(_WRITER.manager, subresource))

    def create_pod(self, manifest: Object) -> Object:
        """Create a pod (namespace ``default`` when it names none) and give it back as stored."""
        return self.api.create(PODS, self._namespace(PODS, manifest), manifest, _WRITER).obj

    def delete_pod(self, namespace: str, name: str, grace: int | None = None) -> None:
        """Ask for a deletion, with a grace period in seconds or the pod's own."""
        self.api.delete(PODS, (namespace, name), {} if grace is None else {"gracePeriodSeconds": grace})

    def pod(self, namespace: str, name: str) -> Object | None:
        found = self.api.store.get(PODS, (namespace, name))
        return found.obj if found else None

    def pods(self) -> list[Object]:
        return [i.obj for i in self.api.store.items(PODS)]

    def nodes(self) -> list[Object]:
        return [i.obj for i in self.api.store.items(NODES)]

    def events(self, namespace: str, name: str) -> list[Object]:
        """Events about the objects of that name, oldest first."""
        found = [i.obj for i in self.api.store.items(EVENTS, namespace)]
        return [e for e in found if e["involvedObject"].get("name") == name]
