"""Whether every container was given what its annotation says and the books hold. Pure, and no part of the engine.

Three accounts of one fact are compared: the environment of the running container, the annotation of its pod, the
extender's books. Beside them stand the pod's limits, and what each GPU has. Pods with init containers are not meant.
"""

from __future__ import annotations

from collections import Counter
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
    """A pod that runs, and the environments of its containers by name."""

    pod: Pod
    environments: Mapping[str, Mapping[str, str]]


class Outcome(NamedTuple):
    """How many containers with GPUs were compared, and what was wrong."""

    containers: int
    faults: tuple[str, ...]


def check(pods: Sequence[Running], books: Inspection) -> Outcome:
    """Compare the three accounts of all running pods that ask for GPUs."""
    asking = [(running, asked) for running in pods if (asked := ask.parse(running.pod, names.Resources()))]
    gpus = {gpu.uuid: (node, gpu) for node in books.nodes for gpu in node.gpus}
    held = {pod.uid: pod.allocation for pod in books.pods}
    faults = [
        f"{running.pod.metadata.name}: {fault}"
        for running, asked in asking
        for fault in _pod(running, asked, held.get(running.pod.metadata.uid), gpus)
    ]
    faults += _room(gpus.values())
    return Outcome(sum(len(asked.containers) for _, asked in asking), tuple(faults))


def verdict(outcome: Outcome, gang: str) -> str:
    """What was compared, and whether it is the same; `gang`: its NAMESPACE/NAME."""
    compared = f"check: environment, annotation and books of {outcome.containers} containers with GPUs"
    if not outcome.faults:
        return f"{compared} say the same, and gang {gang} is whole"
    return "\n".join([f"{compared} differ:", *(f"  {fault}" for fault in outcome.faults)])


def decoded(pod: Mapping[str, Any]) -> Pod:
    """A pod of the cluster, as both processes read it."""
    return msgspec.json.decode(msgspec.json.encode(pod), type=Pod)


def shares(pod: Mapping[str, Any]) -> list[Share]:
    """What the pod's annotation names."""
    noted = allocation.decode((pod["metadata"].get("annotations") or {}).get(names.ALLOCATION))
    return [share for given in noted.containers.values() for share in given] if noted else []


def gang(members: Sequence[Pod], told: Group | None) -> Iterator[str]:
    """A gang that should run: the minimum is bound, by annotations and books alike, and in one and the same start."""
    if told is None:
        yield "the books know nothing of the gang"
        return
    key = f"{told.namespace}/{told.name}"
    bound = [pod for pod in members if pod.spec.node_name]
    if told.phase != "Running" or not told.min_member or len(bound) < told.min_member:
        yield f"{key} is {told.phase}, {len(bound)} of its minimum of {told.min_member} are bound"
    if len(bound) != told.bound:
        yield f"{key}: {len(bound)} members are bound, the books say {told.bound}"
    for pod in bound:
        noted = allocation.decode(pod.metadata.annotations.get(names.ALLOCATION))
        start = noted.group if noted else None
        if start is None or (start.key, start.epoch) != (key, told.epoch):
            yield f"{pod.metadata.name}: its annotation says {start}, the books start {told.epoch} of {key}"


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
    """The annotation against the limits: GPUs asked, and of each the amounts asked."""
    if len({share.uuid for share in shares}) != asked.gpus:
        yield f"{asked.name} asks {asked.gpus} GPUs, its annotation names {[share.uuid for share in shares]}"
    for share in shares:
        whole = gpus[share.uuid][1].mem if share.uuid in gpus else 0
        expected = (whole, slices_per_gpu, True) if asked.whole else (asked.mem, asked.slices, False)
        if (share.mem, share.slices, share.whole) != expected:
            yield f"{asked.name} asks {expected} of a GPU, its annotation says {share}"


def _environment(container: str, shares: Sequence[Share], said: Mapping[str, str], unit_mib: int) -> Iterator[str]:
    """What the container sees against the annotation. Memory is told in MiB, of a whole GPU all that it has."""
    visible = said.get(names.VISIBLE_DEVICES, "")
    if sorted(visible.split(",")) != sorted(share.uuid for share in shares):
        yield f"{container} sees {visible!r}, its annotation names {[share.uuid for share in shares]}"
    told = (int(said.get(names.ENV_MEM_MIB, 0)) // unit_mib, int(said.get(names.ENV_SLICES, 0)))
    if shares and told != (min(share.mem for share in shares), min(share.slices for share in shares)):
        yield f"{container} is told {told[0]} units and {told[1]} slices, its annotation says {shares}"


def _holds(pod: Pod, noted: Allocation, gpus: Gpus) -> Iterator[str]:
    """The annotation against what the books charge to each GPU."""
    noted_on: dict[str, Counter[str]] = {}
    for shares in noted.containers.values():
        for share in shares:
            of_gpu = noted_on.setdefault(share.uuid, Counter())
            of_gpu.update(mem=share.mem, slices=share.slices, whole=int(share.whole))
    for uuid, noted_here in noted_on.items():
        node, gpu = gpus.get(uuid, (None, None))
        if node is None or gpu is None or node.name != pod.spec.node_name:
            yield f"it is on {pod.spec.node_name}, where no GPU {uuid} is"
            continue
        held = [holder for holder in gpu.pods if holder.uid == pod.metadata.uid]
        booked = [Counter(mem=holder.mem, slices=holder.slices, whole=int(holder.whole)) for holder in held]
        if booked != [noted_here]:
            yield f"its annotation says {dict(noted_here)} of {uuid}, the books {[dict(charge) for charge in booked]}"


def _room(gpus: Iterable[tuple[Node, Gpu]]) -> Iterator[str]:
    """What is charged to each GPU against what it has; a whole one has one holder."""
    for node, gpu in gpus:
        mem, slices = sum(pod.mem for pod in gpu.pods), sum(pod.slices for pod in gpu.pods)
        if (mem, slices) != (gpu.mem_used, gpu.slices_used):
            yield f"{node.name} GPU {gpu.index}: its sums are not those of its pods"
        if mem > gpu.mem or slices > node.slices_per_gpu:
            yield f"{node.name} GPU {gpu.index} has {gpu.mem} units, {mem} and {slices} slices are given away"
        if any(pod.whole for pod in gpu.pods) and len(gpu.pods) > 1:
            yield f"{node.name} GPU {gpu.index} is whole for somebody and shared all the same"
