"""What the pods of this node were promised of its GPUs. Pure.

GPUs come from the pod's allocation, if we wrote it, and amounts from its limits, as in the books. So a forged
annotation promises nothing; the plugin of this node then writes the true one.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from deviceplugin.adopt import shares_of
from protos.contract import allocation, codec, names, resize
from protos.contract.ask import PodAsk, held
from protos.contract.books import NodeBooks
from protos.contract.bounds import NAME
from protos.contract.mig import SLICES
from protos.contract.objects import ENDED, ContainerStatus, ObjectMeta, Pod, PodStatus
from protos.contract.ownership import allocation_by_us
from protos.contract.printable import printable


class MeasuredContainer(ContainerStatus, frozen=True):
    """A container's status with its ID, `containerd://<64 hexadecimal digits>`."""

    container_id: str = msgspec.field(default="", name="containerID")


class MeasuredStatus(PodStatus, frozen=True):
    """A pod's status with the IDs of its containers."""

    container_statuses: tuple[MeasuredContainer, ...] = ()
    init_container_statuses: tuple[MeasuredContainer, ...] = ()
    ephemeral_container_statuses: tuple[MeasuredContainer, ...] = ()


class MeasuredPod(Pod, frozen=True):
    """A pod as the measuring process reads it."""

    status: MeasuredStatus = MeasuredStatus()


decode_pod = msgspec.json.Decoder(MeasuredPod).decode


class Promise(NamedTuple):
    """A container's part of one GPU, in MiB of memory."""

    container: str
    uuid: str
    mem_mib: int
    whole: bool


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of this node that has not ended."""

    namespace: str
    name: str
    uid: str
    queue: str = ""
    owner: str = ""
    """Kind/name of its controller."""
    asks: bool = False
    """It requests GPUs."""
    containers: Mapping[str, str] = {}
    """The names of its containers, by the runtime's ID."""
    promises: tuple[Promise, ...] = ()
    parts: Mapping[str, float] = {}
    """What part of each GPU the books charge it, by UUID: the larger of its parts of memory and slices."""


def holder(pod: MeasuredPod, books: NodeBooks | None, resources: names.Resources) -> Holder | None:
    """The pod as a holder, None if it has ended. Without books nothing is known of the node's GPUs."""
    if pod.status.phase in ENDED:
        return None
    meta = pod.metadata
    found = Holder(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        queue=_queue(meta),
        owner=_owner(meta),
        containers=_containers(pod.status),
    )
    ask = held(pod, resources)
    if ask is None:
        return found
    if (resized := resize.of_pod(pod)) is not None:
        ask = resize.booked(ask, resized.booked)
    found = msgspec.structs.replace(found, asks=True)
    given = _given(pod, ask, books) if books is not None else None
    if given is None or books is None:
        return found
    running = {each.name for each in pod.status.init_container_statuses if each.state.running}
    shares = shares_of(ask, {name: tuple(share.uuid for share in own) for name, own in given.items()}, books)
    promises = []
    for container in ask.containers:
        if container.kind == "init" and container.name not in running:
            continue  # the GPUs are those of the containers after it
        for share in shares.get(container.name, ()):
            gpu = books.gpus[share.uuid].gpu if share.uuid in books.gpus else None
            whole = gpu.mem_mib if gpu and share.whole else 0
            mem_mib = whole or share.mem * books.inventory.unit_mib
            promises.append(Promise(container.name, share.uuid, mem_mib, share.whole))
    return msgspec.structs.replace(found, promises=tuple(promises), parts=_parts(ask, given, books))


def _given(pod: Pod, ask: PodAsk, books: NodeBooks) -> Mapping[str, allocation.Shares] | None:
    """The GPUs of each container, None while they are unknown or said by somebody else."""
    try:
        written = allocation.decode(pod.metadata.annotations.get(names.ALLOCATION))
    except codec.ContractError:
        return None
    if written is None or not allocation_by_us(pod, settled=False):
        return None
    return written.containers if books.charges(ask, written.containers) is not None else None


def _parts(ask: PodAsk, given: Mapping[str, allocation.Shares], books: NodeBooks) -> dict[str, float]:
    parts = {}
    for uuid, demand in (books.charges(ask, given) or {}).items():
        book = books.gpus.get(uuid)
        if book is not None:
            of_memory = demand.mem / max(1, book.gpu.mem)
            part = max(of_memory, demand.slices / books.inventory.slices_per_gpu)
            parts[uuid] = book.gpu.slices / SLICES if demand.whole else part
    return parts


def _containers(status: MeasuredStatus) -> dict[str, str]:
    every = (*status.init_container_statuses, *status.container_statuses, *status.ephemeral_container_statuses)
    return {each.container_id.partition("://")[2]: each.name for each in every if each.container_id}


def _queue(meta: ObjectMeta) -> str:
    """The queue that the pod names itself, by our key."""
    return _short(meta.annotations.get(names.QUEUE, "") or meta.labels.get(names.QUEUE, ""))


def _owner(meta: ObjectMeta) -> str:
    found = next((each for each in meta.owner_references if each.controller), None)
    return _short(f"{found.kind}/{found.name}") if found else ""


def _short(text: str) -> str:
    """The text as a label; one that is no name of anything is left out."""
    return printable(text) if len(text) <= 2 * NAME.most else ""
