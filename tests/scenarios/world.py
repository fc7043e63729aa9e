"""The one interface through which scenarios drive a cluster, embedded or real."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

Object = dict[str, Any]  # a Kubernetes object as JSON

PLURALS = {"GpuClass": "gpuclasses", "PriorityClass": "priorityclasses"}
CLUSTER_WIDE = ("Namespace", "Node", "GpuClass", "Queue", "PriorityClass", "CustomResourceDefinition")


def path(api_version: str, kind: str, namespace: str = "default", name: str = "") -> str:
    """The URL path of an object, or of the collection that it is created in."""
    root = "/apis/" if "/" in api_version else "/api/"
    place = "" if kind in CLUSTER_WIDE else f"/namespaces/{namespace}"
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    return f"{root}{api_version}{place}/{plural}" + (f"/{name}" if name else "")


def filters(metrics: str) -> int:
    """How often the extender was asked to filter, in the text of its metrics; 0 if it never was."""
    prefix = 'gangshare_verb_seconds_count{verb="filter"} '
    counts = [line.removeprefix(prefix) for line in metrics.splitlines() if line.startswith(prefix)]
    return int(float(counts[0])) if counts else 0


def without_gate(gate: str) -> Object:
    """The strategic merge patch that removes a scheduling gate of a pod."""
    return {"spec": {"schedulingGates": [{"$patch": "delete", "name": gate}]}}


class World(Protocol):
    """A running cluster with the extender, its scheduler, and a kubelet and a plugin per node.

    What is asked for shows the present state of the API server. Restarts return when the new process has been started,
    not when it is ready: scenarios wait for what they need.
    """

    async def create_pod(self, manifest: Object) -> str:
        """Create a pod (namespace ``default`` when it names none); its UID."""
        ...

    async def delete_pod(self, namespace: str, name: str, grace: int | None = None) -> None:
        """Ask for the pod's deletion, with a grace period in seconds or its own."""
        ...

    async def pod(self, namespace: str, name: str) -> Object | None:
        """The pod, None when there is none of that name."""
        ...

    async def pods(self) -> list[Object]:
        """All pods of all namespaces."""
        ...

    async def events(self, namespace: str, name: str) -> list[Object]:
        """Core v1 Events about the object of that name, oldest first."""
        ...

    async def container_env(self, namespace: str, name: str, container: str) -> dict[str, str]:
        """The environment the container has, read from its log; empty while it has not started."""
        ...

    async def create(self, manifest: Object) -> Object:
        """Create an object of any kind (namespace ``default`` when it needs one and names none); as stored."""
        ...

    async def get(self, api_version: str, kind: str, name: str, namespace: str = "default") -> Object | None:
        """An object of any kind; None when there is none, or when its kind is not known."""
        ...

    async def items(self, api_version: str, kind: str, namespace: str = "default") -> list[Object]:
        """The objects of a kind; none when it is not known."""
        ...

    async def delete(self, api_version: str, kind: str, name: str, namespace: str = "default") -> None:
        """Ask for the deletion of an object of any kind, and of what it owns; nothing when there is none."""
        ...

    async def patch(
        self, api_version: str, kind: str, name: str, body: Object, *, namespace: str = "default", subresource: str = ""
    ) -> None:
        """A JSON merge patch of an object of any kind, or of its status."""
        ...

    async def told(self, namespace: str) -> list[Object]:
        """All core v1 Events of a namespace."""
        ...

    async def books(self) -> Object:
        """What the extender's status port tells at /inspect; empty while it does not answer."""
        ...

    async def questions(self) -> int:
        """How often the extender that runs was asked to filter."""
        ...

    async def open_gate(self, namespace: str, name: str, gate: str) -> None:
        """Remove a scheduling gate of the pod, as its owner would."""
        ...

    async def nodes(self) -> list[Object]:
        """All nodes."""
        ...

    async def stop_extender(self) -> None:
        """End the extender (TERM); `restart_extender` starts it again."""
        ...

    async def restart_extender(self, kill: bool = False) -> None:
        """End the extender (TERM, or KILL) and start it again."""
        ...

    async def restart_scheduler(self, kill: bool = False) -> None:
        """End the scheduler and start it again."""
        ...

    async def restart_kubelet(self, node: str) -> None:
        """Kill the node's kubelet and start it again; containers go on."""
        ...

    async def restart_plugin(self, node: str, kill: bool = False) -> None:
        """End the node's plugin (TERM, or KILL) and start it again."""
        ...

    async def set_gpu_health(self, node: str, index: int, health: str) -> None:
        """Edit the node's fake profile: ``ok``, ``sick:<why>``, ``mig`` or ``gone``."""
        ...

    async def wait(self, holds: Callable[[], Awaitable[object]], timeout: float, what: str) -> None:
        """Return when ``holds()`` answers something true; TimeoutError naming ``what`` after ``timeout`` seconds."""
        ...
