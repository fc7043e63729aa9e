"""What is offered of a machine: the inventory for the cluster, and the device IDs for the kubelet. Pure.

An ID names its GPU: `<UUID>::m<n>` is a unit of memory, `<UUID>::s<n>` a slice, the UUID a whole GPU, `<UUID>::<n>` a
replica of it, in gpushare mode `<UUID>-_-<n>` a unit of memory. A MIG instance has IDs of the same forms. The kubelet
only counts IDs: the annotation of a pod
alone decides which GPUs its containers get.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from deviceplugin.health import GONE
from deviceplugin.machine import Gpu as MachineGpu
from deviceplugin.machine import Machine
from deviceplugin.mig import strategy
from deviceplugin.mig.strategy import Strategy
from deviceplugin.mps import level
from deviceplugin.partitioner.protocol import Kind
from protos.contract import codec, mig, names
from protos.contract.bounds import MIG_PLACES
from protos.contract.inventory import HEALTHY, IN_MIG_MODE, Gpu, Instance, Inventory, Layout, Possible
from protos.contract.isolation import Isolation
from protos.contract.on_demand import OnDemand, at_once
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api

MESSAGE_BYTES = 4 * 2**20
"""The largest message that the kubelet's gRPC client takes."""
SEPARATORS = ("::", "-_-")


class TooManyDevicesError(ValueError):
    """More devices of a resource than fit into one message to the kubelet."""


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """How GPUs are divided, and under which resource names."""

    resources: names.Resources = names.Resources()
    unit_mib: int = names.DEFAULT_UNIT_MIB
    slices_per_gpu: int = names.DEFAULT_SLICES_PER_GPU
    replicas: dict[str, int] = {}
    gpushare: bool = False
    mig: Strategy = Strategy.NONE

    @property
    def served(self) -> tuple[str, ...]:
        """The resources registered with the kubelet, whatever MIG instances there are."""
        shared = (self.resources.shared,) if self.resources.shared in self.replicas else ()
        return self.resources.mem, self.resources.slice, self.resources.whole, *shared

    def counts(self, resource: str) -> bool:
        """Whether this resource is of GPUs that are offered here, by us or by another plugin."""
        return resource in self.resources.all or (self.mig is not Strategy.NONE and self.resources.has(resource))


def inventory(
    machine: Machine, health: Mapping[str, str], sharing: Sharing, isolation: Isolation | None = None
) -> Inventory:
    """The node's inventory; `health` by UUID."""
    single = sharing.mig is Strategy.SINGLE and strategy.uniform(live(machine, health))
    return Inventory(
        v=codec.VERSION,
        unit_mib=sharing.unit_mib,
        slices_per_gpu=sharing.slices_per_gpu,
        replicas=sharing.replicas,
        fabric=machine.fabric,
        isolation=level.joined(isolation, machine.mps),
        gpus=tuple(_gpu(gpu, health.get(gpu.uuid, HEALTHY), sharing.unit_mib) for gpu in machine.gpus),
        links=machine.links,
        mig_strategy="single" if single else msgspec.UNSET,
        mig_layouts=layouts(machine, sharing.unit_mib) or msgspec.UNSET,
    )


def layouts(machine: Machine, unit_mib: int) -> tuple[Layout, ...]:
    """What can be made on demand; GPUs of which the same can be made share a layout."""
    alike: dict[tuple[Possible, ...], list[int]] = {}
    places = 0
    for gpu in machine.cards:
        kinds = machine.kinds.get(gpu.uuid, ()) if gpu.mig and gpu.index < mig.CUT_GPUS else ()
        places += sum(len(kind.starts) for kind in kinds)
        if kinds and places <= MIG_PLACES.most:
            possible = tuple([_possible(kind, unit_mib) for kind in kinds])
            alike.setdefault(possible, []).append(gpu.index)
    return tuple(Layout(tuple(indexes), possible) for possible, indexes in alike.items())


def _possible(kind: Kind, unit_mib: int) -> Possible:
    return Possible(kind.profile, kind.mem_mib // unit_mib, kind.size, kind.starts, kind.most, kind.mem_mib)


def live(machine: Machine, health: Mapping[str, str]) -> list[MachineGpu]:
    """The GPUs and instances that are not gone."""
    return [gpu for gpu in machine.gpus if health.get(gpu.uuid, HEALTHY) != GONE]


def _gpu(gpu: MachineGpu, health: str, unit_mib: int) -> Gpu:
    same = {field: getattr(gpu, field) for field in Gpu.__struct_fields__ if field not in ("mem", "health", "mig")}
    return Gpu(mem=gpu.mem_mib // unit_mib, health=health, mig=gpu.profile or msgspec.UNSET, **same)


def resources(inventory: Inventory, sharing: Sharing) -> tuple[str, ...]:
    """The resources registered with the kubelet while the node has this inventory."""
    if sharing.mig is not Strategy.MIXED:
        return sharing.served
    return sharing.served + strategy.resources((*inventory.gpus, *on_demand(inventory)))


def on_demand(inventory: Inventory) -> Sequence[Instance]:
    """As many instances as can be made of each profile for itself."""
    return at_once(OnDemand(inventory).instances) if inventory.layouts else ()


def _form(resource: str, gpu: Gpu, inventory: Inventory, sharing: Sharing) -> tuple[str, int]:
    """The format of a resource's IDs on this GPU, from UUID and number, and their count."""
    if gpu.profile and resource not in (sharing.resources.mem, sharing.resources.slice):
        return "{}", int(strategy.is_one(gpu, resource, inventory, sharing.resources.whole))
    if resource == sharing.resources.mem:
        return "{}-_-{}" if sharing.gpushare else "{}::m{}", gpu.mem
    if resource == sharing.resources.slice:
        return "{}::s{}", sharing.slices_per_gpu * gpu.slices // mig.SLICES
    if resource in sharing.replicas:
        return "{}::{}", sharing.replicas[resource]
    return "{}", int(resource == sharing.resources.whole)


def gpu_of(device_id: str) -> str:
    """The UUID that an ID names."""
    for separator in SEPARATORS:
        device_id = device_id.partition(separator)[0]
    return device_id


def devices(
    resource: str, inventory: Inventory, sharing: Sharing, held: Collection[str] = ()
) -> api.ListAndWatchResponse:
    """All devices of a resource; raises TooManyDevicesError if they do not fit into one message to the kubelet.

    IDs are the same at every start. Of a sick or gone GPU only the free IDs are unhealthy: the kubelet subtracts
    unhealthy IDs from what the node has, and IDs that pods hold (`held`) are subtracted already. A GPU in MIG mode has
    no devices, nor has one with instances. If instances are made of it, it has its amounts, and they have their names.
    """
    offered = _offered(resource, inventory, sharing)
    _check(resource, offered, inventory, sharing)
    response = api.ListAndWatchResponse()
    for gpu in offered:
        form, count = _form(resource, gpu, inventory, sharing)
        for device_id in (form.format(gpu.uuid, n) for n in range(count)):
            healthy = gpu.health == HEALTHY or device_id in held
            response.devices.add(ID=device_id, health="Healthy" if healthy else "Unhealthy")
    return response


def _offered(resource: str, inventory: Inventory, sharing: Sharing) -> list[Gpu]:
    """The GPUs and MIG instances that have devices of a resource."""
    cut = {index for layout in inventory.layouts for index in layout.gpus}
    instances = [gpu for gpu in inventory.gpus if gpu.profile]
    split = {mig.gpu_of(gpu.index) for gpu in instances} - cut
    cards = [gpu for gpu in inventory.gpus if not gpu.profile and gpu.index not in split]
    if cut and resource in (sharing.resources.mem, sharing.resources.slice):
        instances = [gpu for gpu in instances if mig.gpu_of(gpu.index) not in cut]
        cards = [msgspec.structs.replace(gpu, health=_amounts(gpu)) if gpu.index in cut else gpu for gpu in cards]
    else:
        instances += on_demand(inventory)
        cards = [gpu for gpu in cards if gpu.index not in cut]
    return [gpu for gpu in (*cards, *instances) if gpu.health != IN_MIG_MODE]


def _amounts(gpu: Gpu) -> str:
    """The health of the amounts of a GPU of which instances are made."""
    return HEALTHY if gpu.health == IN_MIG_MODE else gpu.health


def _check(resource: str, gpus: Sequence[Gpu], inventory: Inventory, sharing: Sharing) -> None:
    """Raise TooManyDevicesError if the message may become too long; the message, maybe huge, is not made for it."""
    count = worst = 0
    for gpu in gpus:
        form, here = _form(resource, gpu, inventory, sharing)
        longest = api.Device(ID=form.format(gpu.uuid, max(0, here - 1)), health="Unhealthy")
        count += here
        worst += here * api.ListAndWatchResponse(devices=[longest]).ByteSize()
    if worst <= MESSAGE_BYTES:
        return
    unit = -(-sharing.unit_mib * worst // MESSAGE_BYTES)
    remedy = f"a memory unit of {unit} MiB or more" if resource == sharing.resources.mem else "fewer per GPU"
    raise TooManyDevicesError(
        f"{resource}: {count} devices make a message of up to {worst} bytes, "
        f"and the kubelet takes {MESSAGE_BYTES}: set {remedy}"
    )


def preferred(
    available: Sequence[str], must: Sequence[str], size: int, gpus: Sequence[str], held: Collection[str]
) -> list[str]:
    """`size` of the available device IDs, evenly from these GPUs, and from other GPUs only if these do not suffice.

    IDs in `held` are left out, so the answer may be short: the kubelet then adds any others.
    """
    chosen = list(must)
    free: dict[str, list[str]] = {}
    for device_id in sorted(set(available).difference(must, held), key=lambda device_id: (len(device_id), device_id)):
        free.setdefault(gpu_of(device_id), []).append(device_id)
    queues = [free.pop(gpu, []) for gpu in gpus]
    while len(chosen) < size and any(queues):
        chosen += [queue.pop(0) for queue in queues if queue][: size - len(chosen)]
    rest = [device_id for queue in sorted(free.values(), key=len, reverse=True) for device_id in queue]
    return chosen + rest[: max(0, size - len(chosen))]
