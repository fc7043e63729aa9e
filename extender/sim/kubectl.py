"""What a user does with a cluster: pods made, deleted and looked at."""

from __future__ import annotations

from extender.sim.apiserver.api import Api
from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import EVENTS, NODES, PODS, Object

_WRITER = Writer("kubectl-create")


class Kubectl:
    """A user of an ``Api`` in the same process."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def create_pod(self, manifest: Object) -> Object:
        """Create a pod (namespace ``default`` when it names none) and give it back as stored."""
        namespace = manifest.get("metadata", {}).get("namespace", "default")
        return self.api.create(PODS, namespace, manifest, _WRITER).obj

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
