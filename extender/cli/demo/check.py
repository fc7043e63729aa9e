"""Checks that every container has the devices that its pod's annotation and the extender's books say.

It compares the environment of the running container, the annotation of its pod and the extender's books, and also the
pod's limits and the capacity of each GPU. It uses nothing of the engine. Pods with init containers are not supported.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from extender.wire.answers import Gpu, Group, Inspection, Node
from protos.contract import allocation, ask, names
from protos.contract.allocation import Allocation, Share
from protos.contract.ask import ContainerAsk, PodAsk
from protos.contract.codec import ContractError
from protos.contract.objects import Pod

Gpus = Mapping[str, tuple[Node, Gpu]]
"""The GPUs of a cluster by UUID, with their nodes."""


class Running(NamedTuple):
    """A running pod, and the environments of its containers by name."""

    pod: Pod
    environments: Mapping[str, Mapping[str, str]]


class Outcome(NamedTuple):
    """The number of containers compared, and the faults."""

    containers: int
    faults: tuple[str, ...]


def check(pods: Sequence[Running], books: Inspection) -> Outcome:
    """Check all running pods that request GPUs."""
    asking = [(running, asked) for running in pods if (asked := ask.parse(running.pod, names.Resources()))]
    gpus = {gpu.uuid: (node, gpu) for node in books.nodes for gpu in node.gpus}
    held = {pod.uid: pod.allocation for pod in books.pods}
    faults = [
        f"{running.pod.metadata.name}: {fault}"
        for running, asked in asking
        for fault in _pod(running, asked, held.get(running.pod.metadata.uid), gpus)
    ]
    faults += _capacity(gpus.values())
    return Outcome(sum(len(asked.containers) for _, asked in asking), tuple(faults))


def verdict(outcome: Outcome, gang: str) -> str:
    """The outcome in words; `gang` is NAMESPACE/NAME of the demo's gang."""
    compared = f"check: environment, annotation and books of {outcome.containers} containers with GPUs"
    if not outcome.faults:
        return f"{compared} agree, and gang {gang} is complete"
    return "\n".join([f"{compared} differ:", *(f"  {fault}" for fault in outcome.faults)])


def decoded(pod: Mapping[str, Any]) -> Pod:
    """A pod of the cluster, as extender and plugin decode it."""
    return msgspec.json.decode(msgspec.json.encode(pod), type=Pod)


def shares(pod: Mapping[str, Any]) -> list[Share]:
    """The shares in the pod's annotation."""
    noted = allocation.decode((pod["metadata"].get("annotations") or {}).get(names.ALLOCATION))
    return [share for given in noted.containers.values() for share in given] if noted else []


def gang(members: Sequence[Pod], booked: Group | None) -> Iterator[str]:
    """The faults of a gang that should run: its minimum must be bound in one start, by annotations and books."""
    if booked is None:
        yield "the gang is not in the books"
        return
    key = f"{booked.namespace}/{booked.name}"
    bound = [pod for pod in members if pod.spec.node_name]
    if booked.phase != "Running" or not booked.min_member or len(bound) < booked.min_member:
        yield f"{key} is {booked.phase}, {len(bound)} of at least {booked.min_member} members are bound"
    if len(bound) != booked.bound:
        yield f"{key}: {len(bound)} members are bound, the books say {booked.bound}"
    for pod in bound:
        noted = allocation.decode(pod.metadata.annotations.get(names.ALLOCATION))
        start = noted.group if noted else None
        if start is None or (start.key, start.epoch) != (key, booked.epoch):
            yield f"{pod.metadata.name}: its annotation says {start}, the books say start {booked.epoch} of {key}"


def _pod(running: Running, asked: PodAsk, booked: Allocation | None, gpus: Gpus) -> Iterator[str]:
    pod = running.pod
    try:
        noted = allocation.decode(pod.metadata.annotations.get(names.ALLOCATION))
    except ContractError as error:
        yield str(error)
        return
    if noted is None:
        yield f"it runs on GPUs without the annotation {names.ALLOCATION}"
        return
    if noted != booked:
        yield f"its annotation says {noted}, the books say {booked}"
    for container in asked.containers:
        shares = noted.containers.get(container.name, ())
        yield from _amounts(container, shares, noted.slices_per_gpu, gpus)
        yield from _environment(container.name, shares, running.environments.get(container.name, {}), noted.unit_mib)
    yield from _holds(pod, noted, gpus)


def _amounts(asked: ContainerAsk, shares: Sequence[Share], slices_per_gpu: int, gpus: Gpus) -> Iterator[str]:
    """Compare the annotation with the limits: the number of GPUs, and the amounts of each."""
    if len({share.uuid for share in shares}) != asked.gpus:
        yield f"{asked.name} requests {asked.gpus} GPUs, its annotation names {[share.uuid for share in shares]}"
    for share in shares:
        whole = gpus[share.uuid][1].mem if share.uuid in gpus else 0
        expected = (whole, slices_per_gpu, True) if asked.whole else (asked.mem, asked.slices, False)
        if (share.mem, share.slices, share.whole) != expected:
            yield f"{asked.name} requests {expected} of a GPU, its annotation says {share}"


def _environment(container: str, shares: Sequence[Share], env: Mapping[str, str], unit_mib: int) -> Iterator[str]:
    """Compare the container's environment, where memory is in MiB, with the annotation."""
    visible = env.get(names.VISIBLE_DEVICES, "")
    if sorted(visible.split(",")) != sorted(share.uuid for share in shares):
        yield f"{container} sees {visible!r}, its annotation names {[share.uuid for share in shares]}"
    limits = (int(env.get(names.ENV_MEM_MIB, 0)) // unit_mib, int(env.get(names.ENV_SLICES, 0)))
    if shares and limits != (min(share.mem for share in shares), min(share.slices for share in shares)):
        yield f"{container} may use {limits[0]} units and {limits[1]} slices, its annotation says {shares}"


def _holds(pod: Pod, noted: Allocation, gpus: Gpus) -> Iterator[str]:
    """Compare the annotation with the books' charges on each GPU."""
    noted_on = defaultdict[str, Counter[str]](Counter)
    for shares in noted.containers.values():
        for share in shares:
            noted_on[share.uuid].update(mem=share.mem, slices=share.slices, whole=int(share.whole))
    for uuid, noted_here in noted_on.items():
        node, gpu = gpus.get(uuid, (None, None))
        if node is None or gpu is None or node.name != pod.spec.node_name:
            yield f"it is on {pod.spec.node_name}, which has no GPU {uuid}"
            continue
        held = [holder for holder in gpu.pods if holder.uid == pod.metadata.uid]
        booked = [Counter(mem=holder.mem, slices=holder.slices, whole=int(holder.whole)) for holder in held]
        if booked != [noted_here]:
            yield f"its annotation says {dict(noted_here)} of {uuid}, the books {[dict(charge) for charge in booked]}"


def _capacity(gpus: Iterable[tuple[Node, Gpu]]) -> Iterator[str]:
    """Compare the charges on each GPU with its capacity. A whole GPU has one holder."""
    for node, gpu in gpus:
        mem, slices = sum(pod.mem for pod in gpu.pods), sum(pod.slices for pod in gpu.pods)
        if (mem, slices) != (gpu.mem_used, gpu.slices_used):
            yield f"{node.name} GPU {gpu.index}: its sums differ from those of its pods"
        if mem > gpu.mem or slices > node.slices_per_gpu:
            yield f"{node.name} GPU {gpu.index} has {gpu.mem} units, but {mem} units and {slices} slices are allocated"
        if any(pod.whole for pod in gpu.pods) and len(gpu.pods) > 1:
            yield f"{node.name} GPU {gpu.index} is allocated as a whole and yet shared"
