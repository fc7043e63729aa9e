"""A pod's GPU request: the asks of its containers, and the annotations that select GPUs.

Only limits count, as in the kubelet for device plugins. A pod without GPU resources has no ask (None).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from protos.contract import ask_annotations, mig, names, visibility
from protos.contract.bounds import CONTAINERS, GPU_AMOUNT
from protos.contract.isolation import Demanded
from protos.contract.objects import Container, Pod
from protos.contract.printable import brief
from protos.contract.quantity import QuantityError, integer, unit_of_memory
from protos.contract.reason import AskError as AskError
from protos.contract.selection import ANYTHING, Selection

Kind = Literal["app", "init", "sidecar"]

SHOWN = 60
"""Characters of a resource's name that a sentence shows."""
BYTES = ("i", "M", "G", "T", "P", "E")
"""Ends of amounts of bytes."""


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
    """The resource of whole GPUs or instances, "" for a fractional ask. A node may serve it as replicas of a GPU."""
    shared: bool = False
    """The resource is always a replica."""
    profile: str = ""
    """The MIG profile of the instances that it must get, as the driver names it; "" if it names none."""
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
        ask_annotations.notes(pod.metadata.annotations)
        parts = any(not (each.whole or each.profile) or each.shared for each in ask.containers)
        own = visibility.refused(pod, {each.name: each.gpus for each in ask.containers}, parts=parts)
        if own is not None:
            raise AskError(own.code, own.sentence)
    return ask


def _parse(pod: Pod, resources: names.Resources, wide: Selection, isolation: Demanded) -> PodAsk | None:
    annotations = pod.metadata.annotations
    count = ask_annotations.count(annotations)
    asks = tuple(_container(c, kind, count, resources) for kind, c in _containers(pod) if _asks(c, resources))
    if not asks:
        return None
    if names.GPU_COUNT in annotations and all(ask.whole for ask in asks):
        raise _counted_whole(asks[0], count)
    if len(asks) > CONTAINERS.most:
        raise AskError("AskTooMany", f"{len(asks)} containers ask for GPUs: expected at most {CONTAINERS.most}")
    ask_annotations.gpu_class(pod)
    chosen = ask_annotations.chosen(annotations, wide, isolation)
    others = chosen
    if chosen.isolation != "any" or chosen.profile:
        others = msgspec.structs.replace(chosen, isolation="any", profile="")
        asks = tuple(_of_profile(each, chosen.profile, resources) for each in asks)
    return demanding(PodAsk(containers=asks, selection=others, unit_mib=resources.unit_mib), chosen.isolation)


def _of_profile(ask: ContainerAsk, profile: str, resources: names.Resources) -> ContainerAsk:
    """The ask with the profile that the pod or its class says; raises AskError if it asks for something else."""
    found = mig.profile(profile)
    if found is None or ask.profile == profile:
        return ask
    if ask.profile:
        raise AskError(
            "AskMixed", f"container {ask.name} asks {ask.whole}, and {names.MIG_PROFILE} is {profile}: name one of them"
        )
    if ask.mem * resources.unit_mib > found.memory_gb << 10:
        most = (found.memory_gb << 10) // resources.unit_mib
        raise AskError(
            "AskTooLarge",
            f"container {ask.name} asks {resources.mem} {ask.mem} of an instance {profile}, which has less: "
            f"ask less than {most}, or take a larger profile",
        )
    return msgspec.structs.replace(ask, profile=profile)


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
    for name in _named(container):
        try:
            return _of_resource(container, kind, name, resources)
        except AskError:
            continue
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
    if not limits:
        return False
    parts, whole = (resources.mem, resources.slice), (resources.whole, resources.shared)
    if any(name in limits for name in parts) or any(str(limits.get(name, "0")) != "0" for name in whole):
        return True
    return bool(_named(container))


def _container(container: Container, kind: Kind, count: int, resources: names.Resources) -> ContainerAsk:
    instances = _instances(container, kind, resources)
    if instances is not None:
        return instances
    limits = container.resources.limits if container.resources else {}
    mem, slices, whole, shared = (_amount(container.name, name, limits, resources) for name in resources.all)
    if not (mem or slices or whole or shared):
        raise _zero(container, [name for name in resources.all if name in limits])
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


def _named(container: Container) -> list[str]:
    """The resources of MIG instances that the container asks."""
    limits = container.resources.limits if container.resources else {}
    return sorted(name for name, amount in limits.items() if name.startswith(mig.PREFIX) and str(amount) != "0")


def _instances(container: Container, kind: Kind, resources: names.Resources) -> ContainerAsk | None:
    """The MIG instances that the container asks, as for NVIDIA's plugin; None if it asks none."""
    named = _named(container)
    if not named:
        return None
    limits = container.resources.limits if container.resources else {}
    others = [name for name in resources.all if str(limits.get(name, "0")) != "0"]
    if len(named) + len(others) > 1:
        both = " and ".join(brief(name, SHOWN) for name in (*others, *named))
        raise AskError(
            "AskMixed", f"container {container.name} asks {both}: whole GPUs, parts or MIG instances of one profile"
        )
    return _of_resource(container, kind, named[0], resources)


def _of_resource(container: Container, kind: Kind, name: str, resources: names.Resources) -> ContainerAsk:
    profile = mig.of_resource(name)
    if profile is None:
        asks = f"container {container.name} asks {brief(name, SHOWN)}"
        raise AskError("AskMalformed", f"{asks}: expected a MIG profile, like {mig.PREFIX}1g.10gb")
    count = _amount(container.name, name, container.resources.limits if container.resources else {}, resources)
    if not count:
        raise _zero(container, [name])
    return ContainerAsk(name=container.name, kind=kind, gpus=count, whole=name, profile=profile.name)


def _zero(container: Container, resources: Sequence[str]) -> AskError:
    """The container asks for nothing of these."""
    zero = " and ".join(f"{name} 0" for name in resources)
    return AskError(
        "AskZero", f"container {container.name} asks {zero}, which is no GPU: ask one or more, or leave it out"
    )


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
