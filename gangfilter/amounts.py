"""Amounts by resource, as PodGroups and annotations declare them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gangfilter.values import BadValue, decoded, shown
from protos.contract.bounds import RESOURCE_NAME, RESOURCES
from protos.contract.quantity import QuantityError, milli, units

_NATIVE = ("cpu", "memory", "ephemeral-storage")
_QUANTITIES = msgspec.json.Decoder(dict[str, str | int])


def resources(text: str) -> tuple[tuple[str, int], ...]:
    """Amounts by resource, as JSON."""
    quantities = decoded(text, _QUANTITIES, 'amounts by resource, like {"cpu": "3", "memory": "8Gi"}')
    return amounts(quantities)


def amounts(quantities: Mapping[str, str | int]) -> tuple[tuple[str, int], ...]:
    """Whole amounts above 0 by resource of nodes, sorted, cpu in thousandths; raises BadValue.

    Volcano and others also take the names of a ResourceQuota: `requests.X` is X, and what no node has (`limits.X`,
    numbers of objects, storage) does not count.
    """
    if len(quantities) > RESOURCES.most:
        raise BadValue(f"at most {RESOURCES.most} resources")
    read: dict[str, int] = {}
    for resource, quantity in quantities.items():
        node_resource = _of_nodes(resource)
        try:
            amount = (milli if node_resource == "cpu" else units)(quantity)
        except QuantityError as error:
            raise BadValue(f"amounts by resource; {shown(resource)}: {error}") from error
        if amount < 0:
            raise BadValue(f"amounts of zero or more; {shown(resource)} is {shown(quantity)}")
        read[node_resource] = max(amount, read.get(node_resource, 0))
    return tuple(sorted((resource, amount) for resource, amount in read.items() if resource and amount))


def _of_nodes(resource: str) -> str:
    """The resource of nodes that this name means, "" if it means none."""
    named = resource.removeprefix("requests.")
    if len(named) > RESOURCE_NAME.most:
        return ""
    if "/" in named:
        return "" if named.startswith(("count/", "limits.")) or ".storageclass." in named else named
    return named if named in _NATIVE or named.startswith("hugepages-") else ""
