"""What is offered of MIG instances, by NVIDIA's strategies. Pure.

- `none`: nothing.
- `single`: on a node whose GPUs are all in MIG mode, with instances of one profile, one of the whole-GPU resource is
  one instance.
- `mixed`: a resource for each profile, like `nvidia.com/mig-1g.10gb`.

In the last two an instance also serves amounts of memory and slices. Source: NVIDIA/k8s-device-plugin, internal/rm.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from deviceplugin.machine import Gpu as MachineGpu
from protos.contract import mig
from protos.contract.inventory import Gpu, Inventory
from protos.contract.reason import Reason, listed

SHOWN = 8
"""GPUs or profiles that a message names."""
NOT_UNIFORM = "MigNotUniform"


class Strategy(StrEnum):
    """How instances are offered; the names are those of NVIDIA's plugin."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


def not_uniform(gpus: Sequence[MachineGpu]) -> Reason | None:
    """Why the strategy `single` cannot serve instances as whole GPUs. None if it can, or if no GPU is in MIG mode."""
    cards, instances = [gpu for gpu in gpus if not gpu.profile], [gpu for gpu in gpus if gpu.profile]
    split = {gpu.parent for gpu in instances}
    whole = [str(gpu.index) for gpu in cards if not gpu.mig]
    empty = [str(gpu.index) for gpu in cards if gpu.mig and gpu.uuid not in split]
    profiles = sorted({gpu.profile for gpu in instances})
    if len(whole) == len(cards):
        return None
    if whole:
        why = f"GPU {listed(whole, SHOWN)} is not in MIG mode"
    elif empty:
        why = f"GPU {listed(empty, SHOWN)} has no instance"
    elif len(profiles) > 1:
        why = f"there are instances of {listed(profiles, SHOWN)}"
    else:
        return None
    sentence = (
        "with --mig-strategy=single all GPUs of a node must be in MIG mode, with instances of one profile; until then "
        "no instance of this node is a whole GPU for pods"
    )
    return Reason(NOT_UNIFORM, sentence, why)


def uniform(gpus: Sequence[MachineGpu]) -> bool:
    """Whether one of the whole-GPU resource is one instance."""
    return any(gpu.profile for gpu in gpus) and not_uniform(gpus) is None


def resources(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """The resources of the strategy `mixed` for these instances."""
    found = {profile.resource for gpu in gpus if (profile := mig.profile(gpu.profile)) is not None}
    return tuple(sorted(found))


def is_one(gpu: Gpu, resource: str, inventory: Inventory, whole: str) -> bool:
    """Whether the instance is one device of this resource; `whole` is the name of the whole-GPU resource."""
    if resource == whole:
        return inventory.single
    profile = mig.of_resource(resource)
    return profile is not None and profile.name == gpu.profile
