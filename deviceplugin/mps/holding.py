"""Which pods of the node hold GPUs, and when the kubelet kills them. Pure."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from deviceplugin import adopt
from deviceplugin.record import Record
from protos.contract import names, timestamps
from protos.contract.allocation import Share
from protos.contract.books import NodeBooks
from protos.contract.inventory import Inventory
from protos.contract.objects import Pod


class Held(NamedTuple):
    """A pod that holds GPUs."""

    uid: str
    ends: float
    """When the kubelet kills it, in seconds since the epoch; 0 while it is not being deleted."""
    shares: Mapping[str, tuple[Share, ...]]
    """By container."""


def holding(pods: Iterable[Pod], resources: names.Resources, record: Record, inventory: Inventory) -> list[Held]:
    """The pods whose GPUs are known."""
    found = []
    ledger = NodeBooks(inventory)
    known = {pod.metadata.uid: pod for pod in pods if record.given(pod.metadata.uid)}
    for claim in adopt.claims(known.values(), resources, record):
        shares = adopt.shares_of(claim.ask, claim.given, ledger)
        found.append(Held(claim.uid, ends(known[claim.uid]), shares))
    return found


def ends(pod: Pod) -> float:
    """When the kubelet kills the pod: the API server writes the end of its grace period as the time of deletion."""
    with suppress(ValueError):
        if pod.metadata.deletion_timestamp is not None:
            return timestamps.epoch_seconds(pod.metadata.deletion_timestamp)
    return 0.0
