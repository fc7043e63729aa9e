"""What a pod wants: its GPU asks by container, and the annotations that select GPUs.

Only limits are read, as the kubelet does for device plugins. A pod that asks nothing of ours has no ask (None).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from protos.contract import names
from protos.contract.objects import Container, Pod
from protos.contract.quantity import QuantityError, integer, mebibytes
from protos.contract.reason import Reason

Kind = Literal["app", "init", "sidecar"]
HARMLESS_VISIBLE = ("", "none", "void")
MOST_CONTAINERS = 64
"""Containers of one pod that may ask for GPUs."""
MOST_GLOBS, LONGEST_GLOB = 64, 128
"""How many globs an annotation may have, and their characters: each is held against each GPU."""
MOST_DIGITS = 9
"""Of a number in an annotation."""


class AskError(ValueError):
    """An ask that no cluster could serve, with the sentence for its user."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = Reason(code, sentence)


class Demand(NamedTuple):
    """What is taken of one GPU. `whole` takes everything and shares with nobody."""

    mem: int
    slices: int
    whole: bool


class ContainerAsk(msgspec.Struct, frozen=True, kw_only=True):
    """One container's ask: `gpus` different GPUs, each giving `mem` units and `slices` slices, or all of itself."""

    name: str
    kind: Kind = "app"
    gpus: int
    mem: int = 0
    slices: int = 0
    whole: str = ""
    """The whole-GPU resource asked, "" for a fractional ask. A node may serve it as replicas of a GPU."""
    shared: bool = False
    """Asked under a name that only ever means a replica."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which GPUs the pod accepts, and how they should lie."""

    models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    """Globs; a leading `!` excludes."""
    min_mem_mib: int = 0
    min_clock_mhz: int = 0
    min_cc: tuple[int, int] = (0, 0)
    link: Literal["nvlink", "prefer", "any"] = "prefer"
    spread: bool = False


class PodAsk(msgspec.Struct, frozen=True, kw_only=True):
    """All GPU asks of a pod. Equal asks are the same shape: they fit the same places."""

    containers: tuple[ContainerAsk, ...]
    """In the kubelet's order: init containers and sidecars as declared, then app containers."""
    selection: Selection = Selection()

    def container(self, name: str) -> ContainerAsk | None:
        return next((ask for ask in self.containers if ask.name == name), None)

    @property
    def only_whole(self) -> bool:
        return all(ask.whole for ask in self.containers)


def parse(pod: Pod, resources: names.Resources) -> PodAsk | None:
    """The pod's ask, None if it asks for no GPU of ours; raises AskError with a sentence for the user."""
    annotations = pod.metadata.annotations
    count = _count(annotations)
    asks = tuple(_container(c, kind, count, resources) for kind, c in _containers(pod) if _asks(c, resources))
    if not asks:
        return None
    if len(asks) > MOST_CONTAINERS:
        raise AskError("AskTooMany", f"{len(asks)} containers ask for GPUs: expected at most {MOST_CONTAINERS}")
    return PodAsk(containers=asks, selection=_selection(annotations))


def held(pod: Pod, resources: names.Resources) -> PodAsk | None:
    """What a pod that is bound may hold, whatever is wrong with its ask: nothing is left out of the books for that.

    Where the ask makes sense this is `parse`; else amounts that cannot be read count as none, gpu-count as 1, and whole
    GPUs go before parts.
    """
    try:
        return parse(pod, resources)
    except AskError:
        asks = (_held(c, kind, resources) for kind, c in _containers(pod) if _asks(c, resources))
        found = tuple(ask for ask in asks if ask.whole or ask.mem or ask.slices)
        return PodAsk(containers=found) if found else None


def _held(container: Container, kind: Kind, resources: names.Resources) -> ContainerAsk:
    limits = container.resources.limits if container.resources else {}
    amounts = []
    for name in resources.all:
        try:
            amounts.append(max(0, _amount(container.name, name, limits)))
        except AskError:
            amounts.append(0)
    mem, slices, whole, shared = amounts
    if whole or shared:
        name = resources.whole if whole else resources.shared
        return ContainerAsk(name=container.name, kind=kind, gpus=whole or shared, whole=name, shared=not whole)
    return ContainerAsk(name=container.name, kind=kind, gpus=1, mem=mem, slices=slices)


def _containers(pod: Pod) -> Iterator[tuple[Kind, Container]]:
    for container in pod.spec.init_containers:
        yield ("sidecar" if container.restart_policy == "Always" else "init"), container
    for container in pod.spec.containers:
        yield "app", container


def _asks(container: Container, resources: names.Resources) -> bool:
    limits = container.resources.limits if container.resources else {}
    return any(name in limits and str(limits[name]) != "0" for name in resources.all)


def _container(container: Container, kind: Kind, count: int, resources: names.Resources) -> ContainerAsk:
    limits = container.resources.limits if container.resources else {}
    mem, slices, whole, shared = (_amount(container.name, name, limits) for name in resources.all)
    _refuse_own_devices(container)
    if ((whole or shared) and (mem or slices)) or (whole and shared):
        both = [name for name in resources.all if limits.get(name)]
        raise AskError(
            "AskMixed", f"container {container.name} asks {' and '.join(both)}: whole GPUs or parts, not both"
        )
    if whole or shared:
        return ContainerAsk(
            name=container.name,
            kind=kind,
            gpus=whole or shared,
            whole=resources.whole if whole else resources.shared,
            shared=bool(shared),
        )
    for name, amount in ((resources.mem, mem), (resources.slice, slices)):
        if amount % count:
            down, up = amount // count * count, (amount // count + 1) * count
            nearest = f"{down} or {up}" if down else str(up)
            raise AskError(
                "AskUneven", f"{name} {amount} does not divide by {names.GPU_COUNT} {count}: {nearest} would"
            )
    return ContainerAsk(name=container.name, kind=kind, gpus=count, mem=mem // count, slices=slices // count)


def _refuse_own_devices(container: Container) -> None:
    for variable in container.env:
        own = variable.value_from is not None or (variable.value or "") not in HARMLESS_VISIBLE
        if variable.name == names.VISIBLE_DEVICES and own:
            raise AskError(
                "AskOwnDevices",
                f"container {container.name} sets {names.VISIBLE_DEVICES} itself: leave it out, we set it",
            )


def _amount(container: str, resource: str, limits: Mapping[str, str | int]) -> int:
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
    return amount


def _count(annotations: Mapping[str, str]) -> int:
    text = annotations.get(names.GPU_COUNT, "1")
    if not _is_number(text) or not 1 <= int(text) <= 1024:
        raise AskError("AskMalformed", f"{names.GPU_COUNT} is {text[:40]!r}: expected a whole number from 1 to 1024")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def _selection(annotations: Mapping[str, str]) -> Selection:
    def number(key: str, what: str) -> int:
        text = annotations.get(key, "0")
        if not _is_number(text):
            raise AskError("AskMalformed", f"{key} is {text[:40]!r}: expected {what}")
        return int(text)

    def globs(key: str) -> tuple[str, ...]:
        patterns = tuple(part.strip() for part in annotations.get(key, "").split(",") if part.strip())
        if key in annotations and (not patterns or "!" in patterns):
            raise AskError("AskMalformed", f"{key} is {annotations[key][:40]!r}: expected globs divided by commas")
        if len(patterns) > MOST_GLOBS or any(len(pattern) > LONGEST_GLOB for pattern in patterns):
            most = f"at most {MOST_GLOBS} globs of at most {LONGEST_GLOB} characters"
            raise AskError("AskMalformed", f"{key} is {annotations[key][:40]!r}…: expected {most}")
        return patterns

    if names.GPU_CLASS in annotations:
        raise AskError(
            "AskUnknownClass", f"{names.GPU_CLASS} is {annotations[names.GPU_CLASS][:40]!r}: no such GpuClass"
        )
    return Selection(
        models=globs(names.GPU_MODEL),
        uuids=globs(names.GPU_UUID),
        min_mem_mib=_memory(annotations),
        min_clock_mhz=number(names.MIN_CLOCK_MHZ, "a clock in MHz, like 1400"),
        min_cc=_capability(annotations),
        link=_choice(annotations, names.LINK, ("prefer", "nvlink", "any")),  # type: ignore[arg-type]
        spread=_choice(annotations, names.PLACEMENT, ("pack", "spread")) == "spread",
    )


def _choice(annotations: Mapping[str, str], key: str, choices: tuple[str, ...]) -> str:
    value = annotations.get(key, choices[0])
    if value not in choices:
        raise AskError("AskMalformed", f"{key} is {value[:40]!r}: expected {', '.join(sorted(choices))}")
    return value


def _memory(annotations: Mapping[str, str]) -> int:
    text = annotations.get(names.MIN_GPU_MEMORY)
    if text is None:
        return 0
    try:
        return mebibytes(text)
    except QuantityError as error:
        raise AskError(
            "AskMalformed", f"{names.MIN_GPU_MEMORY} is {text[:40]!r}: expected an amount like 40Gi"
        ) from error


def _capability(annotations: Mapping[str, str]) -> tuple[int, int]:
    text = annotations.get(names.MIN_COMPUTE_CAPABILITY)
    if text is None:
        return (0, 0)
    major, _, minor = text.partition(".")
    if not (_is_number(major) and _is_number(minor or "0")):
        raise AskError("AskMalformed", f"{names.MIN_COMPUTE_CAPABILITY} is {text[:40]!r}: expected one like 8.0")
    return int(major), int(minor or 0)
