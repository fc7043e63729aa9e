"""A queue: what the pods of a tenant may use together, and what is their due. Ours, Volcano's and ElasticQuotas.

Amounts are by resource: `gpus` and `class/NAME` in millionths of a GPU, `cpu` in thousandths of a core, everything else
in whole units, as pods ask for them. `gpus` is the one unit of account over memory, slices and whole GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from protos.contract import names
from protos.contract.quantity import LARGEST, milli, units
from protos.contract.selector import Requirement, Selector

API_VERSION = f"{names.DOMAIN}/v1alpha1"
KIND, PLURAL = "Queue", "queues"
GPUS = "gpus"
"""GPUs, parts of them counted as parts."""
CLASS = "class/"
"""Before the name of a GpuClass: the GPUs of pods that name it."""
GPU = 1_000_000
"""One GPU of account."""
DEFAULT = "default"
"""The queue of all that is in no other; it needs no object."""

Amounts = Mapping[str, int]
NOBODY = Selector(match_expressions=(Requirement("", "Exists"),))
"""Selects no namespace: no label has an empty name."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as it was read."""

    name: str
    """Of an ElasticQuota: NAMESPACE/NAME."""
    source: str = API_VERSION
    """API group and version of its object, "" if it has none."""
    parent: str = ""
    """"" for one that hangs below the root."""
    weight: int = 1
    priority: int = 0
    guarantee: Amounts = {}
    """Kept for it even while it is idle."""
    deserved: Amounts = {}
    """Its part as soon as it asks; what it does not ask others may use."""
    capability: Amounts = {}
    """Never more than this."""
    reclaimable: bool = True
    closed: bool = False
    """Nothing new starts."""
    namespaces: tuple[str, ...] = ()
    """Pods of these that name no queue are in it."""
    namespace_selector: Selector | None = None
    """Whose pods may use it; None, and one that says nothing: all."""
    description: str = ""
    problem: str = ""
    """Why it cannot be read, "" if it can."""

    @property
    def namespaced(self) -> bool:
        """Whether it is an ElasticQuota, which belongs to its namespace."""
        return "/" in self.name


def amount(resource: str, quantity: str | int) -> int:
    """A quantity of a resource as it is counted, no larger than Kubernetes' largest; raises QuantityError."""
    if isinstance(quantity, int):
        quantity = min(quantity, LARGEST)
    if _of_account(resource):
        return milli(quantity) * (GPU // 1000)
    return milli(quantity) if resource == "cpu" else units(quantity)


def shown(resource: str, counted: float) -> str:
    """An amount as people and Kubernetes write it; decimals of GPUs and cores as far as they matter."""
    per = GPU if _of_account(resource) else 1000 if resource == "cpu" else 0
    return f"{counted / per:.3f}".rstrip("0").rstrip(".") if per else str(round(counted))


def worded(resource: str, counted: float) -> str:
    """An amount and what it is of, for people: `8 GPUs`."""
    if resource == GPUS:
        return f"{shown(resource, counted)} GPUs"
    if resource.startswith(CLASS):
        return f"{shown(resource, counted)} GPUs of class {resource.removeprefix(CLASS)}"
    return f"{shown(resource, counted)} of {resource}"


def _of_account(resource: str) -> bool:
    return resource == GPUS or resource.startswith(CLASS)
