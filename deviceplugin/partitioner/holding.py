"""Which instances that are made on demand the pods of this node hold. Pure."""

from collections.abc import Iterable

from deviceplugin.partitioner.protocol import Held
from deviceplugin.record import Record
from protos.contract import allocation, codec, mig, names
from protos.contract.bounds import MIG_HELD
from protos.contract.objects import ENDED, Pod


def held(pods: Iterable[Pod], record: Record) -> Held:
    """Those that were given to pods that have not ended. What only a pod's annotation says is kept, and never made."""
    places, keep = dict[str, None](), dict[str, None]()
    left = {pod.metadata.uid: pod for pod in pods if pod.status.phase not in ENDED}
    for uid, pod in left.items():
        given = {uuid for uuids in record.given(uid).values() for uuid in uuids}
        (keep if not given else places).update(dict.fromkeys(_places(given or _said(pod))))
    return Held(places=tuple(places)[: MIG_HELD.most], keep=tuple(keep)[: MIG_HELD.most])


def _places(uuids: Iterable[str]) -> list[str]:
    return sorted(uuid for uuid in uuids if mig.place(uuid) is not None)


def _said(pod: Pod) -> frozenset[str]:
    """The GPUs that the annotation of a running pod names."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    if not any(status.state.running for status in statuses):
        return frozenset()
    try:
        found = allocation.decode(pod.metadata.annotations.get(names.ALLOCATION))
    except codec.ContractError:
        return frozenset()
    return found.uuids() if found is not None else frozenset()
