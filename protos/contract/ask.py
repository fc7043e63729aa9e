"""A pod's GPU request: the asks of its containers, and the annotations that select GPUs.

Only limits count, as in the kubelet for device plugins. A pod without GPU resources has no ask (None).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeVar

import msgspec

from protos.contract import names, selection, visibility
from protos.contract.bounds import CONTAINERS, GPU_AMOUNT, GPU_COUNT, NAME
from protos.contract.gpu_class import CLASS_NAME
from protos.contract.isolation import Demanded
from protos.contract.objects import Container, Pod
from protos.contract.quantity import QuantityError, integer, unit_of_memory
from protos.contract.reason import Reason
from protos.contract.selection import ANYTHING, Selection, SelectionError, is_number
from protos.contract.timestamps import epoch_seconds, timestamp

Kind = Literal["app", "init", "sidecar"]

BYTES = ("i", "M", "G", "T", "P", "E")
"""Ends of amounts of bytes."""

T = TypeVar("T")


class AskError(ValueError):
    """An invalid ask, with the sentence for its user."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = Reason(code, sentence)


class Demand(NamedTuple):
    """The demand on one GPU; a `whole` one is exclusive."""

    mem: int
    slices: int
    whole: bool


NOTHING = Demand(0, 0, False)


class ContainerAsk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One container's ask: `gpus` different GPUs, of each `mem` units and `slices` slices, or the whole GPU."""

    name: str
    kind: Kind = "app"
    gpus: int
    mem: int = 0
    slices: int = 0
    whole: str = ""
    """The whole-GPU resource, "" for a fractional ask. A node may serve it as replicas of a GPU."""
    shared: bool = False
    """The resource is always a replica."""
    isolation: Demanded = "any"
    """What the node must enforce unless it gets whole GPUs; the same for all containers of a pod."""


class PodAsk(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True, gc=False):
    """All GPU asks of a pod. Equal asks are one shape: they fit the same nodes."""

    containers: tuple[ContainerAsk, ...]
    """In the kubelet's order: init containers and sidecars as declared, then app containers."""
    selection: Selection = ANYTHING
    unit_mib: int = names.DEFAULT_UNIT_MIB
    """MiB in a unit of `mem`."""

    def container(self, name: str) -> ContainerAsk:
        return next(ask for ask in self.containers if ask.name == name)

    @property
    def only_whole(self) -> bool:
        return all(ask.whole for ask in self.containers)


def parse(
    pod: Pod, resources: names.Resources, wide: Selection = ANYTHING, isolation: Demanded = "any"
) -> PodAsk | None:
    """The pod's ask, None without GPU resources; raises AskError.

    `wide` is the selection of the pod's GpuClass, which the pod's annotations narrow; `isolation` is what a pod
    demands that says nothing of it.
    """
    ask = _parse(pod, resources, wide, isolation)
    if ask is not None:
        _notes(pod.metadata.annotations)
        parts = any(not each.whole or each.shared for each in ask.containers)
        own = visibility.refused(pod, {each.name: each.gpus for each in ask.containers}, parts=parts)
        if own is not None:
            raise AskError(own.code, own.sentence)
    return ask


def _parse(pod: Pod, resources: names.Resources, wide: Selection, isolation: Demanded) -> PodAsk | None:
    annotations = pod.metadata.annotations
    count = _count(annotations)
    asks = tuple(_container(c, kind, count, resources) for kind, c in _containers(pod) if _asks(c, resources))
    if not asks:
        return None
    if names.GPU_COUNT in annotations and all(ask.whole for ask in asks):
        raise _counted_whole(asks[0], count)
    if len(asks) > CONTAINERS.most:
        raise AskError("AskTooMany", f"{len(asks)} containers ask for GPUs: expected at most {CONTAINERS.most}")
    gpu_class(pod)
    chosen = _selection(annotations, wide, isolation)
    others = chosen if chosen.isolation == "any" else msgspec.structs.replace(chosen, isolation="any")
    return demanding(PodAsk(containers=asks, selection=others, unit_mib=resources.unit_mib), chosen.isolation)


def demanding(ask: PodAsk, isolation: Demanded) -> PodAsk:
    """The ask with this demand for isolation."""
    if all(each.isolation == isolation for each in ask.containers):
        return ask
    containers = tuple(msgspec.structs.replace(each, isolation=isolation) for each in ask.containers)
    return msgspec.structs.replace(ask, containers=containers)


def held(pod: Pod, resources: names.Resources) -> PodAsk | None:
    """The ask of a bound pod, which the books must charge even if the ask is invalid.

    A valid ask is that of `parse`, whatever else the pod says in vain. In an invalid ask unreadable amounts
    count as 0 and gpu-count as 1, and whole GPUs take precedence over parts.
    """
    try:
        return _parse(pod, resources, ANYTHING, "any")
    except AskError:
        asks = (_held(c, kind, resources) for kind, c in _containers(pod) if _asks(c, resources))
        charged = tuple(ask for ask in asks if ask.whole or ask.mem or ask.slices)
        return PodAsk(containers=charged, unit_mib=resources.unit_mib) if charged else None


def _held(container: Container, kind: Kind, resources: names.Resources) -> ContainerAsk:
    limits = container.resources.limits if container.resources else {}
    amounts = []
    for name in resources.all:
        try:
            amounts.append(max(0, _amount(container.name, name, limits, resources)))
        except AskError:
            amounts.append(0)
    mem, slices, whole, shared = amounts
    if whole or shared:
        return _whole(container, kind, whole, shared, resources)
    return ContainerAsk(name=container.name, kind=kind, gpus=1, mem=mem, slices=slices)


def _whole(container: Container, kind: Kind, whole: int, shared: int, resources: names.Resources) -> ContainerAsk:
    name = resources.whole if whole else resources.shared
    return ContainerAsk(name=container.name, kind=kind, gpus=whole or shared, whole=name, shared=not whole)


def _containers(pod: Pod) -> Iterator[tuple[Kind, Container]]:
    for container in pod.spec.init_containers:
        yield ("sidecar" if container.restart_policy == "Always" else "init"), container
    for container in pod.spec.containers:
        yield "app", container


def _asks(container: Container, resources: names.Resources) -> bool:
    """Whether it asks for GPUs; zero whole GPUs are how pods for any cluster say that they need none."""
    limits = container.resources.limits if container.resources else {}
    parts, whole = (resources.mem, resources.slice), (resources.whole, resources.shared)
    return any(name in limits for name in parts) or any(str(limits.get(name, "0")) != "0" for name in whole)


def _container(container: Container, kind: Kind, count: int, resources: names.Resources) -> ContainerAsk:
    limits = container.resources.limits if container.resources else {}
    mem, slices, whole, shared = (_amount(container.name, name, limits, resources) for name in resources.all)
    if not (mem or slices or whole or shared):
        zero = " and ".join(f"{name} 0" for name in resources.all if name in limits)
        raise AskError(
            "AskZero", f"container {container.name} asks {zero}, which is no GPU: ask one or more, or leave it out"
        )
    if ((whole or shared) and (mem or slices)) or (whole and shared):
        both = [name for name in resources.all if limits.get(name)]
        raise AskError(
            "AskMixed", f"container {container.name} asks {' and '.join(both)}: whole GPUs or parts, not both"
        )
    if whole or shared:
        return _whole(container, kind, whole, shared, resources)
    for name, amount in ((resources.mem, mem), (resources.slice, slices)):
        if amount % count:
            down, up = amount // count * count, (amount // count + 1) * count
            nearest = f"{down} or {up}" if down else str(up)
            raise AskError(
                "AskUneven", f"{name} {amount} does not divide by {names.GPU_COUNT} {count}: {nearest} would"
            )
    return ContainerAsk(name=container.name, kind=kind, gpus=count, mem=mem // count, slices=slices // count)


def _counted_whole(ask: ContainerAsk, count: int) -> AskError:
    """The pod has gpu-count, but whole GPUs only."""
    return AskError(
        "AskMixed",
        f"container {ask.name} asks {ask.whole} {ask.gpus}, and {names.GPU_COUNT} {count} is for parts of GPUs: "
        f"write {ask.whole}: {max(count, ask.gpus)} without {names.GPU_COUNT}",
    )


def _amount(container: str, resource: str, limits: Mapping[str, str | int], resources: names.Resources) -> int:
    value = limits.get(resource)
    if value is None:
        return 0
    try:
        amount = integer(value)
    except QuantityError as error:
        raise AskError(
            "AskMalformed", f"container {container}: {resource} is {value!r}: expected a whole number"
        ) from error
    if amount < 0:
        raise AskError("AskMalformed", f"container {container}: {resource} is {value!r}: expected zero or more")
    if resource == resources.mem and (amount > GPU_AMOUNT.most or str(value).endswith(BYTES)):
        units = -(-amount // (resources.unit_mib << 20))
        unit = unit_of_memory(resources.unit_mib)
        raise AskError(
            "AskUnit",
            f"container {container}: {resource} is {value!r}: expected a number of {unit}: write {resource}: {units}",
        )
    return amount


def _count(annotations: Mapping[str, str]) -> int:
    text = annotations.get(names.GPU_COUNT, "1")
    if not is_number(text) or not 1 <= int(text) <= GPU_COUNT.most:
        raise AskError(
            "AskMalformed",
            f"{names.GPU_COUNT} is {text[:40]!r}: expected a whole number from 1 to {GPU_COUNT.most}",
        )
    return int(text)


def gpu_class(pod: Pod) -> str:
    """The name of the pod's GpuClass, "" without one; raises AskError for an invalid name."""
    name = pod.metadata.annotations.get(names.GPU_CLASS)
    if name is None:
        return ""
    if len(name) > NAME.most or not CLASS_NAME.fullmatch(name):
        raise AskError("AskMalformed", f"{names.GPU_CLASS} is {name[:40]!r}: expected the name of a GpuClass")
    return name


def _selection(annotations: Mapping[str, str], wide: Selection, isolation: Demanded) -> Selection:
    def read(key: str, parse: Callable[[str], T], default: T) -> T:
        return selection.read(key, annotations.get(key), parse, default)

    try:
        own = Selection(
            models=read(names.GPU_MODEL, _globs, ()),
            uuids=read(names.GPU_UUID, selection.uuids, ()),
            min_mem_mib=read(names.MIN_GPU_MEMORY, selection.memory, 0),
            min_clock_mhz=read(names.MIN_CLOCK_MHZ, _clock, 0),
            min_cc=read(names.MIN_COMPUTE_CAPABILITY, selection.compute_capability, (0, 0)),
            link=read(names.LINK, selection.link, selection.LINKS[0]),
            spread=read(names.PLACEMENT, _second("pack", "spread"), False),
            mixed=read(names.MIXED_MODELS, _second("deny", "allow"), False),
            isolation=read(names.ISOLATION, selection.isolation, isolation),
        )
    except SelectionError as error:
        raise AskError("AskMalformed", str(error)) from error
    return wide.narrowed(own, link_said=names.LINK in annotations)


def _notes(annotations: Mapping[str, str]) -> None:
    """Raise AskError for annotations that would count as not set once the pod runs."""
    if annotations.get(names.RESTARTABLE, "true") not in ("true", "false"):
        told = annotations[names.RESTARTABLE][:40]
        raise AskError("AskMalformed", f"{names.RESTARTABLE} is {told!r}: expected true or false")
    try:
        epoch_seconds(annotations.get(names.CHECKPOINT, timestamp(0)))
    except ValueError as error:
        told = annotations[names.CHECKPOINT][:40]
        raise AskError(
            "AskMalformed", f"{names.CHECKPOINT} is {told!r}: expected a time like 2026-01-31T12:00:00Z"
        ) from error


def _globs(text: str) -> tuple[str, ...]:
    return selection.globs(text.split(","))


def _clock(text: str) -> int:
    if not is_number(text):
        raise SelectionError("a clock in MHz, like 1400")
    return int(text)


def _second(*words: str) -> Callable[[str], bool]:
    def is_second(text: str) -> bool:
        if text not in words:
            raise SelectionError(", ".join(words))
        return text == words[1]

    return is_second
