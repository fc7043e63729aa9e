"""What a container gets of the node's isolation, or why it is refused. Pure.

Whole GPUs and MIG instances have one holder: they need no limit, and get none.
"""

from collections.abc import Mapping, Sequence
from functools import reduce

from deviceplugin import adopt
from deviceplugin.adopt import Claim
from deviceplugin.isolation.checks import Limiter
from deviceplugin.record import Record
from protos.contract import names
from protos.contract.allocation import Share
from protos.contract.ask import AskError, ContainerAsk, Demand
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import peak
from protos.contract.inventory import Inventory
from protos.contract.isolation import DEMANDED, Demanded, stricter
from protos.contract.objects import Pod
from protos.contract.reason import Reason

ANYTHING = DEMANDED[0]
LEAST = 1
"""MiB of a share that rounds to no unit of memory: without a limit it could use the whole GPU."""


def limit_mib(shares: Sequence[Share], inventory: Inventory, by: Limiter = "driver") -> int:
    """The memory limit of a container on each of its GPUs, in MiB; 0 if it gets none, or not from `by`.

    One limit holds for all of its GPUs, so it is the least of what it may use of each.
    """
    isolation = inventory.enforced
    if isolation.memory != by or not shares or any(share.whole for share in shares):
        return 0
    usable = {gpu.uuid: gpu.mem_mib for gpu in inventory.gpus}
    amounts = [share.mem * inventory.unit_mib for share in shares]
    bounds = [usable[share.uuid] for share in shares if share.uuid in usable]
    return max(LEAST, min(amounts + bounds))


def of_pod(
    pod: Pod,
    record: Record,
    ledger: NodeBooks,
    resources: names.Resources,
    others: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The memory limits of a whole pod in MiB by GPU, for all of its containers; empty if none was given one.

    `others` are limits of containers that count instead of those in force.
    """
    limits, given = {**record.limits(pod.metadata.uid), **(others or {})}, record.given(pod.metadata.uid)
    try:
        claim = adopt.claim_of(pod, resources, given) if limits else None
    except AskError:
        return {}
    if claim is None:
        return {}
    shares = adopt.shares_of(claim.ask, given, ledger)
    return together(claim.ask.containers, shares, limits, ledger.inventory)


def together(
    asks: Sequence[ContainerAsk],
    shares: Mapping[str, Sequence[Share]],
    limits: Mapping[str, int],
    inventory: Inventory,
) -> dict[str, int]:
    """What containers of one pod with these limits may use together of each GPU, in MiB: init containers run before.

    A container without a limit counts with what it requests.
    """
    by_gpu: dict[str, list[tuple[ContainerAsk, Demand]]] = {}
    for ask in asks:
        for share in shares.get(ask.name, ()):
            if not share.whole:
                mib = limits.get(ask.name) or share.mem * inventory.unit_mib
                by_gpu.setdefault(share.uuid, []).append((ask, Demand(mib, 0, False)))
    usable = {gpu.uuid: gpu.mem_mib for gpu in inventory.gpus}
    return {uuid: min(peak(parts).mem, usable.get(uuid, peak(parts).mem)) for uuid, parts in by_gpu.items()}


def refusal(claim: Claim, shares: Mapping[str, Sequence[Share]], inventory: Inventory) -> Reason | None:
    """Why this node may not take the pod: it demands more than the isolation in force. None if it may.

    `shares` are those of the containers whose GPUs are known; of the others the request says whether they get parts. A
    pod that runs stays: it was admitted under the isolation of that time.
    """
    isolation = inventory.enforced
    parts = [ask for ask in claim.ask.containers if _in_parts(ask, shares.get(ask.name, ()), inventory)]
    demanded = reduce(stricter, (_demanded(claim, ask) for ask in parts), ANYTHING)
    if claim.running or isolation.meets(demanded):
        return None
    sentence = f"the pod demands isolation of {demanded}, and this node gives {isolation}"
    return Reason("NoIsolation", sentence, isolation.why)


def needs_cap(claim: Claim, container: str, shares: Sequence[Share], inventory: Inventory) -> bool:
    """Whether a container that starts now must have its compute capped by MPS."""
    ask = claim.ask.container(container)
    return not claim.running and _in_parts(ask, shares, inventory) and _demanded(claim, ask) == "compute"


def _in_parts(ask: ContainerAsk, shares: Sequence[Share], inventory: Inventory) -> bool:
    if shares:
        return not all(share.whole for share in shares)
    return not ask.whole or ask.whole in inventory.replicas


def _demanded(claim: Claim, ask: ContainerAsk) -> Demanded:
    """By the extender, which knows the defaults of namespace and class; never less than the pod itself says."""
    return stricter(ask.isolation, (claim.allocation and claim.allocation.isolation) or "any")
