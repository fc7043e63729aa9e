"""Finds pods that run although the kubelet never asked for their GPUs, and tells it.

A kubelet without a checkpoint (a new disk under the name of an old node) starts the pods that it finds at once. Plugins
register later, so the containers run without what they request. Only a new pod mends that.
Source: k8s.io/kubernetes/pkg/kubelet/cm/devicemanager, Allocate: it passes over a resource that nobody has registered.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from deviceplugin.candidates import Listed
from deviceplugin.cluster import Cluster
from deviceplugin.devices import Sharing
from deviceplugin.metrics import Metrics
from deviceplugin.podresources import PodResources, PodResourcesError
from deviceplugin.record import Record
from protos.contract.objects import ENDED, Pod
from protos.contract.quantity import integer_or_zero

REASON = "GpuNotAllocated"
LOOK_S = 10.0
"""Between two looks. A pod must be seen twice, since a status may be of the kubelet before."""


class Unallocated(NamedTuple):
    """A running container without the devices that it requests."""

    pod: Pod
    container: str
    resource: str

    @property
    def sentence(self) -> str:
        return (
            f"container {self.container} runs, and the kubelet has allocated no {self.resource} to it: it started "
            "before this node's plugin. Delete the pod, so that a new one gets its GPUs"
        )


def suspects(pods: Iterable[Pod], record: Record, sharing: Sharing) -> dict[str, Unallocated]:
    """The running pods of which no Allocate is known, by UID, each with its first container of that kind. Pure."""
    known, found = record.uids(), dict[str, Unallocated]()
    for pod in pods:
        meta = pod.metadata
        if meta.uid not in known and meta.deletion_timestamp is None and pod.status.phase not in ENDED:
            for container, resource in _running(pod, sharing):
                found.setdefault(meta.uid, Unallocated(pod, container, resource))
    return found


def confirmed(found: Mapping[str, Unallocated], listed: Iterable[Listed]) -> dict[str, Unallocated]:
    """Those of which the kubelet, too, knows no devices. Pure."""
    by_name = {entry.name: entry for entry in listed}
    kept = {}
    for uid, one in found.items():
        entry = by_name.get((one.pod.metadata.namespace, one.pod.metadata.name))
        if entry is not None and one.container in entry.devices and not entry.shows(one.container, one.resource):
            kept[uid] = one
    return kept


class Watch:
    """Looks for such pods. It asks the kubelet only while there may be some."""

    def __init__(
        self, cluster: Cluster, record: Record, kubelet: PodResources, sharing: Sharing, metrics: Metrics
    ) -> None:
        self._cluster, self._record, self._kubelet = cluster, record, kubelet
        self._sharing, self._metrics = sharing, metrics
        self._seen: frozenset[str] = frozenset()
        """UIDs of the look before."""
        self._told: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Look for ever."""
        await self._cluster.pods_listed.wait()
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Tell of the pods that this look and the one before found."""
        found = suspects(self._cluster.pods.values(), self._record, self._sharing)
        if found:
            try:
                found = confirmed(found, await self._kubelet.list())
            except PodResourcesError:
                return
        certain = {uid: one for uid, one in found.items() if uid in self._seen}
        self._seen, told = frozenset(found), self._told
        self._told = frozenset(certain)
        self._metrics.unallocated.set(len(certain))
        for uid, one in certain.items():
            if uid not in told:
                await self._cluster.tell(one.pod, REASON, one.sentence, "Warning")


def _running(pod: Pod, sharing: Sharing) -> Iterator[tuple[str, str]]:
    """The running containers that request GPUs, each with a resource. The kubelet's List hides init containers."""
    running = {status.name for status in pod.status.container_statuses if status.state.running}
    for container in pod.spec.containers:
        limits = container.resources.limits if container.resources and container.name in running else {}
        for resource, amount in limits.items():
            if sharing.counts(resource) and integer_or_zero(amount):
                yield container.name, resource
