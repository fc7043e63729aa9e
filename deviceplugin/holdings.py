"""What the containers of this node truly have, in the messages of PodResources v1. Pure.

The kubelet's own List names the device IDs that it counted: one for each unit of memory, maybe of another GPU than the
container got. Here a container has one device for each of its GPUs, named like those of NVIDIA's plugin, since that is
what dcgm-exporter reads (its internal/pkg/transformation): the UUID for a whole GPU or a MIG instance,
`<UUID>::<container>` for a part.
"""

from collections.abc import Iterable, Mapping, Sequence

from deviceplugin import adopt
from deviceplugin.candidates import Name
from deviceplugin.record import Given
from protos.contract import names
from protos.contract.ask import AskError
from protos.contract.inventory import Inventory
from protos.contract.objects import Pod
from protos.kubelet.podresources.v1 import podresources_v1_pb2 as api

INSTANCE = "MIG-"
"""The UUID of an instance that was made on demand is not in the inventory."""
MESSAGE_BYTES = 4 * 2**20
"""The largest message that a gRPC client in Go takes by default."""
Ids = Mapping[str, tuple[str, ...]]
"""The device IDs of each container that has GPUs, by container name."""


def ids(pod: Pod, given: Given, inventory: Inventory, resources: names.Resources) -> Ids:
    """The devices of a pod's containers, without ordinary init containers, which the kubelet does not list either.

    `given` is what was answered. Where nothing is known of that, the annotation of a running pod says it.
    """
    try:
        claim = adopt.claim_of(pod, resources, given)
    except AskError:
        return {}
    if claim is None:
        return {}
    gpus = claim.given or (_annotated(claim, inventory) if claim.running else {})
    found = {}
    instances = {gpu.uuid for gpu in inventory.gpus if gpu.profile}
    for ask in claim.ask.containers:
        whole = bool(ask.whole) and ask.whole not in inventory.replicas
        own = dict.fromkeys(gpus.get(ask.name, ()))
        if own and ask.kind != "init":
            alone = own if whole else instances
            found[ask.name] = tuple(_named(uuid, ask.name, whole=uuid in alone) for uuid in own)
    return found


def _named(uuid: str, container: str, *, whole: bool) -> str:
    return uuid if whole or uuid.startswith(INSTANCE) else f"{uuid}::{container}"


def _annotated(claim: adopt.Claim, inventory: Inventory) -> Given:
    here = {gpu.uuid for gpu in inventory.gpus}
    shares = claim.allocation.containers if claim.allocation else {}
    return {name: tuple(share.uuid for share in own if share.uuid in here) for name, own in shares.items()}


def corrected(
    listed: Iterable[api.PodResources], held: Mapping[Name, Ids], resources: names.Resources
) -> list[api.PodResources]:
    """The pods of the kubelet's List, with the true devices in place of those of our resources."""
    return [_corrected(pod, held.get((pod.namespace, pod.name), {}), resources) for pod in listed]


def alone(held: Mapping[Name, Ids]) -> list[api.PodResources]:
    """The pods that have GPUs, where the kubelet does not answer."""
    found = []
    for (namespace, name), by_container in held.items():
        containers = [api.ContainerResources(name=one, devices=_devices(own)) for one, own in by_container.items()]
        found.append(api.PodResources(namespace=namespace, name=name, containers=containers))
    return found


def fitting(pods: Sequence[api.PodResources], most: int = MESSAGE_BYTES) -> api.ListPodResourcesResponse:
    """A message of at most `most` bytes: of too many pods, the last are left out, first those without GPUs."""
    whole = api.ListPodResourcesResponse(pod_resources=pods)
    if whole.ByteSize() <= most:
        return whole
    found, size = [], 0
    for pod in sorted(pods, key=lambda pod: not _has_gpus(pod)):
        size += api.ListPodResourcesResponse(pod_resources=[pod]).ByteSize()
        if size > most:
            break
        found.append(pod)
    return api.ListPodResourcesResponse(pod_resources=found)


def _corrected(pod: api.PodResources, by_container: Ids, resources: names.Resources) -> api.PodResources:
    found = api.PodResources()
    found.CopyFrom(pod)
    for container in found.containers:
        own = by_container.get(container.name, ())
        # Whole GPUs of a container that we do not know were given by another plugin, under their true names.
        ours = (resources.mem, resources.slice)
        others = [
            entry
            for entry in container.devices
            if entry.resource_name not in ours and not (own and resources.has(entry.resource_name))
        ]
        del container.devices[:]
        container.devices.extend([*others, *_devices(own)])
    return found


def _devices(own: Sequence[str]) -> list[api.ContainerDevices]:
    """One entry for each device, as the kubelet lists them; dcgm-exporter takes over a part's name within an entry."""
    return [api.ContainerDevices(resource_name=names.WHOLE_GPU, device_ids=[device]) for device in own]


def _has_gpus(pod: api.PodResources) -> bool:
    return any(entry.resource_name == names.WHOLE_GPU for one in pod.containers for entry in one.devices)
