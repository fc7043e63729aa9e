"""Another amount of GPU memory for containers of a running pod: what is wanted, booked, and in force. Pure.

A user writes `gangshare.io/resize` (`Wish`). The extender books it and answers with `gangshare.io/resized`, which
counts only if the extender wrote it. The plugin then changes the limit, and tells so with `gangshare.io/limited`, which
only people read. Amounts are units of memory on each GPU of the container.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from protos.contract import codec, names
from protos.contract.allocation import Allocation
from protos.contract.ask import PodAsk
from protos.contract.bounds import CONTAINERS, GPU_AMOUNT
from protos.contract.objects import Name, Pod
from protos.contract.ownership import by_extender

Amount = Annotated[int, msgspec.Meta(ge=1, le=GPU_AMOUNT.most)]
Amounts = Annotated[dict[Name, Amount], msgspec.Meta(max_length=CONTAINERS.most)]
"""By container."""
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=1024)]


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user wants of a pod."""

    v: int
    id: Id
    """Differs from wish to wish: each is answered once."""
    containers: Annotated[Amounts, msgspec.Meta(min_length=1)]


class Resized(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The extender's answer to the last wish, and what holds of all wishes."""

    v: int
    id: Id
    containers: Amounts = {}
    """The amounts to which containers are limited."""
    booked: Amounts = {}
    """What is booked for them, if that is more than they request: the most that they had."""
    refused: Text = ""
    """Why the last wish was refused, "" if it was granted."""


class Limited(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of the last wish on the node."""

    v: int
    id: Id
    failed: Text = ""
    """Why the limit could not be changed, "" if it was."""


wish = codec.Annotation(names.RESIZE, Wish)
resized = codec.Annotation(names.RESIZED, Resized)
limited = codec.Annotation(names.LIMITED, Limited)


def of_pod(pod: Pod) -> Resized | None:
    """The answer on a pod that the extender wrote; None if there is none, or it cannot be read."""
    text = pod.metadata.annotations.get(names.RESIZED)
    if text is None or not by_extender(pod, names.RESIZED):
        return None
    try:
        return resized.decode(text)
    except codec.ContractError:
        return None


def booked(ask: PodAsk, amounts: Mapping[str, int]) -> PodAsk:
    """The ask of a pod for whose containers so much is booked; never less than it requests."""
    containers = tuple(
        msgspec.structs.replace(each, mem=amounts[each.name])
        if each.mem and not each.whole and amounts.get(each.name, 0) > each.mem
        else each
        for each in ask.containers
    )
    return ask if containers == ask.containers else msgspec.structs.replace(ask, containers=containers)


def allocated(written: Allocation, amounts: Mapping[str, int]) -> Allocation:
    """The allocation of a pod for whose containers so much is booked, for people: the annotation keeps its amounts."""
    containers = {
        name: tuple(
            share
            if share.whole or share.mem >= amounts.get(name, 0)
            else msgspec.structs.replace(share, mem=amounts[name])
            for share in shares
        )
        for name, shares in written.containers.items()
    }
    return msgspec.structs.replace(written, containers=containers)
