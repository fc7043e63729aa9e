"""The pods of one node and the node's inventory, as the API server shows them; nothing is written."""

import asyncio
import contextlib

import structlog

from deviceplugin.usage import holders
from deviceplugin.usage.holders import Holder, MeasuredPod
from protos.contract import codec, inventory, names, objects
from protos.contract.books import NodeBooks
from protos.contract.inventory import Inventory
from protos.kube import changes, paths, reflect
from protos.kube.client import ApiClient

log = structlog.get_logger()


class NodePods:
    """Follows the pods bound to one node, and the node itself."""

    def __init__(self, client: ApiClient, node_name: str, resources: names.Resources) -> None:
        self.inventory: Inventory | None = None
        """None as long as no plugin has written it, or while it cannot be read."""
        self.listed = asyncio.Event()
        self._resources = resources
        self._books: NodeBooks | None = None
        self._pods: dict[tuple[str, str], MeasuredPod] = {}
        self._holders: dict[str, Holder | None] = {}
        """By UID; made when they are asked for, and kept until the pod or the inventory changes."""
        of_node = {"fieldSelector": f"spec.nodeName={node_name}"}
        self._of_pods = reflect.Reflector(client, paths.pods(), holders.decode_pod, selectors=of_node)
        named = {"fieldSelector": f"metadata.name={node_name}"}
        self._of_node = reflect.Reflector(client, paths.nodes(), objects.decode_node, selectors=named)

    @property
    def trouble(self) -> str:
        """Why the pods or the node are not followed, "" if they are as far as is known."""
        found = self._of_pods.trouble or self._of_node.trouble
        return "" if found is None else f"what is promised may be old, since the API server does not answer: {found}"

    def holders(self) -> list[Holder]:
        """The pods that have not ended, and what they were promised."""
        found = []
        for pod in self._pods.values():
            uid = pod.metadata.uid
            if uid not in self._holders:
                self._holders[uid] = holders.holder(pod, self._books, self._resources)
            holder = self._holders[uid]
            if holder is not None:
                found.append(holder)
        return found

    @property
    def pods(self) -> list[MeasuredPod]:
        """All pods of the node, as last seen."""
        return list(self._pods.values())

    async def watch_pods(self) -> None:
        """Follow the pods for ever."""
        async with contextlib.aclosing(self._of_pods.events()) as stream:
            async for event in stream:
                match event:
                    case changes.Seen(ref, pod):
                        self._forget((ref.namespace, ref.name))
                        self._pods[ref.namespace, ref.name] = pod
                    case changes.Deleted(ref, _):
                        self._forget((ref.namespace, ref.name))
                    case changes.Undecodable(ref, _, error):
                        log.warning("pod_undecodable", pod=str(ref), error=str(error))
                    case changes.Listed():
                        self.listed.set()

    async def watch_node(self) -> None:
        """Follow the node for ever."""
        async with contextlib.aclosing(self._of_node.events()) as stream:
            async for event in stream:
                match event:
                    case changes.Seen(_, node):
                        self._read(node.metadata.annotations.get(names.GPUS))
                    case changes.Deleted():
                        self._read(None)

    def _forget(self, name: tuple[str, str]) -> None:
        known = self._pods.pop(name, None)
        if known is not None:
            self._holders.pop(known.metadata.uid, None)

    def _read(self, text: str | None) -> None:
        try:
            found = inventory.decode(text)
        except codec.ContractError as error:
            log.warning("inventory_unreadable", error=str(error))
            found = None
        if found != self.inventory:
            self.inventory, self._books = found, None if found is None else NodeBooks(found)
            self._holders.clear()
