"""Queues: limits and shares of a tenant's pods. Kinds are ours, Volcano's and ElasticQuotas.

Amounts are by resource: `gpus` and `class/NAME` in millionths of a GPU, `cpu` in thousandths of a core, everything else
in whole units, as pods request them. `gpus` sums up memory, slices and whole GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from protos.contract import names
from protos.contract.quantity import milli, units
from protos.contract.selector import Requirement, Selector

API_VERSION = f"{names.DOMAIN}/v1alpha1"
KIND, PLURAL = "Queue", "queues"
GPUS = "gpus"
"""GPUs, with fractions."""
CLASS = "class/"
"""Prefix of the name of a GpuClass: the GPUs of pods of this class."""
GPU = 1_000_000
"""One GPU, in millionths."""
DEFAULT = "default"
"""The queue of pods without another queue; it needs no object."""

Amounts = Mapping[str, int]
NOBODY = Selector(match_expressions=(Requirement("", "Exists"),))
"""Selects no namespace: no label has an empty name."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded queue."""

    name: str
    """NAMESPACE/NAME for an ElasticQuota."""
    source: str = API_VERSION
    """API group and version of its object, "" without an object."""
    parent: str = ""
    """"" for a queue below the root."""
    weight: int = 1
    priority: int = 0
    guarantee: Amounts = {}
    """Reserved for it even while it is idle."""
    deserved: Amounts = {}
    """Its share on request; other queues may borrow the unused part."""
    capability: Amounts = {}
    """The upper limit of its usage."""
    reclaimable: bool = True
    closed: bool = False
    """It admits no new workloads."""
    namespaces: tuple[str, ...] = ()
    """It is the queue of pods of these namespaces that name no queue."""
    namespace_selector: Selector | None = None
    """Namespaces whose pods may use it; None or an empty selector: all."""
    description: str = ""
    problem: str = ""
    """Why the object cannot be read, "" if it can."""

    @property
    def namespaced(self) -> bool:
        """Whether it is an ElasticQuota, which belongs to a namespace."""
        return "/" in self.name


def amount(resource: str, quantity: str | int) -> int:
    """A quantity as an amount, capped at Kubernetes' largest value; raises QuantityError."""
    if _counts_gpus(resource):
        return milli(quantity) * (GPU // 1000)
    return milli(quantity) if resource == "cpu" else units(quantity)


def shown(resource: str, counted: float) -> str:
    """An amount as a quantity for users; GPUs and cores with at most three decimals."""
    per = GPU if _counts_gpus(resource) else 1000 if resource == "cpu" else 0
    return f"{counted / per:.3f}".rstrip("0").rstrip(".") if per else str(round(counted))


def worded(resource: str, counted: float) -> str:
    """An amount with its resource, for users: `8 GPUs`."""
    if resource == GPUS:
        return f"{shown(resource, counted)} GPUs"
    if resource.startswith(CLASS):
        return f"{shown(resource, counted)} GPUs of class {resource.removeprefix(CLASS)}"
    return f"{shown(resource, counted)} of {resource}"


def _counts_gpus(resource: str) -> bool:
    return resource == GPUS or resource.startswith(CLASS)
