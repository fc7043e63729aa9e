"""This node and its pods as the API server shows them, and the plugin's writes to them.

Annotations go through the status subresources, which do not change the spec. A pod's patch names its UID, so that it
never changes another pod of the same name.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec
import structlog

from deviceplugin.candidates import Name
from protos.contract import names, objects
from protos.kube import changes, errors, events, paths, reflect
from protos.kube.client import JSON_PATCH, STRATEGIC_PATCH, ApiClient, Body

log = structlog.get_logger()
Kind = Literal["Normal", "Warning"]
ENDED = 256
"""Ended pods that are remembered."""
READ_S = 2.0
"""Timeout of reading pods."""


class Cluster:
    """The pods bound to one node, and the node itself. `on_pod` and `on_gone` (UID) are called after changes."""

    def __init__(self, client: ApiClient, node_name: str, recorder: events.Recorder) -> None:
        self.client, self.node_name, self.recorder = client, node_name, recorder
        self.pods: dict[Name, objects.Pod] = {}
        self._ended: deque[str] = deque(maxlen=ENDED)
        """UIDs of the latest pods that ended or were deleted."""
        self.node: objects.Node | None = None
        self.pods_listed = asyncio.Event()
        ours = {"fieldSelector": f"spec.nodeName={node_name}"}
        self._pods = reflect.Reflector(client, paths.pods(), objects.decode_pod, selectors=ours)
        self.on_pod: Callable[[objects.Pod], None] = lambda _: None
        self.on_gone: Callable[[str], None] = lambda _: None

    @property
    def followed(self) -> bool:
        """Whether the watch of the pods is up, as far as is known."""
        return self.pods_listed.is_set() and self._pods.trouble is None

    async def watch_pods(self) -> None:
        """Follow the pods of this node for ever."""
        async with contextlib.aclosing(self._pods.events()) as stream:
            async for event in stream:
                match event:
                    case changes.Seen(_, pod):
                        self._store(pod)
                        self.on_pod(pod)
                    case changes.Deleted(ref, _):
                        self._remove((ref.namespace, ref.name), ref.uid)
                    case changes.Undecodable(ref, _, error):
                        log.warning("pod_undecodable", pod=str(ref), error=str(error))
                    case changes.Listed():
                        self.pods_listed.set()

    async def watch_node(self) -> None:
        """Follow the node object for ever."""
        ours = {"fieldSelector": f"metadata.name={self.node_name}"}
        reflector = reflect.Reflector(self.client, paths.nodes(), objects.decode_node, selectors=ours)
        async with contextlib.aclosing(reflector.events()) as stream:
            async for event in stream:
                match event:
                    case changes.Seen(_, node):
                        self._store_node(node)
                    case changes.Deleted():
                        self.node = None

    async def refresh(self, wanted: Iterable[Name]) -> dict[Name, objects.Pod | None]:
        """Read these pods from the API server now; None for one that is not on this node.

        Of a pod that cannot be decoded, the last state that could. Raises ApiError.
        """
        wanted = list(wanted)
        try:
            async with asyncio.timeout(READ_S):
                found = await asyncio.gather(*(self._read(name) for name in wanted))
        except TimeoutError as error:
            raise errors.Unavailable(f"GET {len(wanted)} pods", message=f"no answer in {READ_S:g} s") from error
        return dict(zip(wanted, found, strict=True))

    async def annotate_pod(self, pod: objects.Pod, annotations: Mapping[str, str]) -> None:
        """Set annotations of a pod, through its status; raises ApiError."""
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid, "annotations": annotations}}
        answer = await self._patch(paths.pod(meta.namespace, meta.name, "status"), body)
        self._store(objects.decode_pod(answer))

    async def patch_node(self, annotations: Mapping[str, str], resources: Mapping[str, str]) -> None:
        """Set annotations of this node, and amounts of resources without devices; raises ApiError."""
        body: dict[str, Any] = {"metadata": {"annotations": annotations}}
        if resources:
            body["status"] = {"capacity": resources, "allocatable": resources}
        answer = await self._patch(paths.node(self.node_name, "status"), body)
        self._store_node(objects.decode_node(answer))

    async def remove_taint(self, node: objects.Node, taint: objects.Taint) -> None:
        """Remove a taint from this node, unless its taints have changed; raises ApiError."""
        where = f"/spec/taints/{node.spec.taints.index(taint)}"
        tests = {f"{where}/key": taint.key, f"{where}/effect": taint.effect, "/metadata/uid": node.metadata.uid}
        body = [{"op": "test", "path": path, "value": value} for path, value in tests.items()]
        answer = await self._patch(paths.node(self.node_name), [*body, {"op": "remove", "path": where}], JSON_PATCH)
        self._store_node(objects.decode_node(answer))

    async def tell(self, pod: objects.Pod, reason: str, message: str, kind: Kind = "Normal") -> None:
        """Post an Event about a pod; an error is only logged."""
        meta = pod.metadata
        about = events.Reference(api_version="v1", kind="Pod", name=meta.name, namespace=meta.namespace, uid=meta.uid)
        await self._post(about, reason, message, kind, pod=f"{meta.namespace}/{meta.name}")

    async def tell_node(self, reason: str, message: str, kind: Kind = "Normal") -> None:
        """Post an Event about this node, and log it."""
        log.warning("notice", reason=reason, message=message)
        about = events.Reference(api_version="v1", kind="Node", name=self.node_name, uid=self.node_name)
        await self._post(about, reason, message, kind)

    async def _post(self, about: events.Reference, reason: str, message: str, kind: Kind, **logged: str) -> None:
        try:
            await self.recorder.post(about, reason, message, kind=kind)
        except errors.ApiError as error:
            log.warning("event_not_written", **logged, reason=reason, error=str(error))

    async def _read(self, name: Name) -> objects.Pod | None:
        try:
            pod = objects.decode_pod(await self.client.get(paths.pod(*name)))
        except errors.NotFound:
            pod = None
        except msgspec.DecodeError as error:  # it must not keep other pods of this node from their GPUs
            log.warning("pod_undecodable", pod="/".join(name), error=str(error))
            return self.pods.get(name)
        if pod is None or pod.spec.node_name != self.node_name:
            known = self.pods.get(name)
            if known is not None:
                self._remove(name, known.metadata.uid)
            return None
        self._store(pod)
        return pod

    async def _patch(self, path: str, body: Body, content_type: str = STRATEGIC_PATCH) -> bytes:
        return await self.client.patch(path, body, content_type=content_type, params={"fieldManager": names.PLUGIN})

    def _store(self, pod: objects.Pod) -> None:
        """Keep the newest state of a pod. A pod of the same name with another UID has replaced the pod known so far.

        An answer of the API server may be older than the pod's deletion, which the watch has already shown.
        """
        if pod.metadata.uid in self._ended:
            return
        name = (pod.metadata.namespace, pod.metadata.name)
        known = self.pods.get(name)
        if known is not None and known.metadata.uid == pod.metadata.uid:
            if _version(known) > _version(pod):
                return
        elif known is not None:
            self._remove(name, known.metadata.uid)
        self.pods[name] = pod

    def _store_node(self, node: objects.Node) -> None:
        known = self.node
        if known is None or known.metadata.uid != node.metadata.uid or _version(known) <= _version(node):
            self.node = node

    def _remove(self, name: Name, uid: str) -> None:
        known = self.pods.get(name)
        if known is not None and known.metadata.uid == uid:
            del self.pods[name]
        self._ended.append(uid)
        self.on_gone(uid)


def _version(of: objects.Pod | objects.Node) -> int:
    text = of.metadata.resource_version
    return int(text) if text.isdecimal() else 0
