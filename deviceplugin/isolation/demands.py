"""What a container gets of the node's isolation, or why it is refused. Pure.

Whole GPUs and MIG instances have one holder: they need no limit, and get none.
"""

from collections.abc import Mapping, Sequence
from functools import reduce

from deviceplugin.adopt import Claim
from protos.contract.allocation import Share
from protos.contract.ask import ContainerAsk
from protos.contract.inventory import Inventory
from protos.contract.isolation import DEMANDED, Demanded, stricter
from protos.contract.reason import Reason

ANYTHING = DEMANDED[0]
LEAST = 1
"""MiB of a share that rounds to no unit of memory: without a limit it could use the whole GPU."""


def limit_mib(shares: Sequence[Share], inventory: Inventory) -> int:
    """The memory limit of a container on each of its GPUs, in MiB; 0 if it gets none.

    One limit holds for all of its GPUs, so it is the least of what it may use of each.
    """
    isolation = inventory.enforced
    if isolation.memory != "driver" or not shares or any(share.whole for share in shares):
        return 0
    usable = {gpu.uuid: gpu.mem_mib for gpu in inventory.gpus}
    amounts = [share.mem * inventory.unit_mib for share in shares]
    bounds = [usable[share.uuid] for share in shares if share.uuid in usable]
    return max(LEAST, min(amounts + bounds))


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


def _in_parts(ask: ContainerAsk, shares: Sequence[Share], inventory: Inventory) -> bool:
    if shares:
        return not all(share.whole for share in shares)
    return not ask.whole or ask.whole in inventory.replicas


def _demanded(claim: Claim, ask: ContainerAsk) -> Demanded:
    """By the extender, which knows the defaults of namespace and class; never less than the pod itself says."""
    return stricter(ask.isolation, (claim.allocation and claim.allocation.isolation) or "any")
