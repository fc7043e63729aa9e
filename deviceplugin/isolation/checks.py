"""Which running containers must have a memory limit, and what the driver's answer means. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from deviceplugin.machine import MemoryLimit
from deviceplugin.record import Record
from protos.contract.objects import ENDED, Pod

MIB = 2**20
MISMATCH = "IsolationMismatch"
State = Literal["unknown", "enforced", "mismatch"]
STATES: tuple[State, ...] = ("unknown", "enforced", "mismatch")
Key = tuple[str, str]
"""UID of the pod, and the runtime's ID of the container: a restarted container has another."""


class Limited(NamedTuple):
    """A running container that was given a memory limit of so many MiB on each of its GPUs."""

    pod: Pod
    container: str
    uuids: tuple[str, ...]
    mib: int
    of_pod: Mapping[str, int] = {}
    """What its whole pod is limited to by GPU, where the helper limits pods."""


class Read(NamedTuple):
    """The driver's answers about one GPU; the pod's limit is asked for only if the container has none."""

    own: MemoryLimit | None
    pod: MemoryLimit | None = None


class Verdict(NamedTuple):
    """What the driver's answers mean; the sentence is "" unless they differ from what was given."""

    state: State
    sentence: str = ""
    unlimited: bool = False
    """The container has no limit at all on one of its GPUs."""


def limited(
    pods: Iterable[Pod], record: Record, of_pod: Callable[[Pod], Mapping[str, int]] = lambda _: {}
) -> dict[Key, Limited]:
    """The running containers of these pods that were given a limit; `of_pod` is that of a whole pod by GPU."""
    found: dict[Key, Limited] = {}
    for pod in pods:
        uid = pod.metadata.uid
        limits = record.limits(uid)
        if not limits or pod.status.phase in ENDED:
            continue
        given, together = record.given(uid), of_pod(pod)
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            number = status.container_id.rpartition("//")[2]
            if status.name in limits and status.state.running and number:
                found[uid, number] = Limited(
                    pod, status.name, given.get(status.name, ()), limits[status.name], together
                )
    return found


def verdict(given: Limited, read: Mapping[str, Read], indexes: Mapping[str, int]) -> Verdict:
    """Whether the limits that the driver tells, by UUID, are what was given. `indexes`: of the GPUs, by UUID."""
    if not read or set(given.uuids) - read.keys():
        return Verdict("unknown")
    for uuid in given.uuids:
        (own, above), gpu = read[uuid], f"GPU {indexes.get(uuid, uuid)}"
        if own is None and above is not None:
            if above.hard != given.of_pod.get(uuid, 0) * MIB:
                told = f"the pod has a memory limit of {above.hard // MIB} MiB on {gpu}"
                return Verdict("mismatch", f"{told}: it was given {given.of_pod.get(uuid, 0)} MiB")
        elif own is None:
            sentence = f"container {given.container} has no memory limit on {gpu}: it was given {given.mib} MiB"
            return Verdict("mismatch", sentence, unlimited=True)
        elif own.hard != given.mib * MIB:
            told = f"container {given.container} has a memory limit of {own.hard // MIB} MiB on {gpu}"
            return Verdict("mismatch", f"{told}: it was given {given.mib} MiB")
    return Verdict("enforced")
