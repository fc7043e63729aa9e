"""Which running containers must have a memory limit, and what the answer of who sets it means. Pure."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Literal, NamedTuple

from deviceplugin.machine import MemoryLimit
from deviceplugin.record import Record
from protos.contract import timestamps
from protos.contract.objects import ENDED, ContainerStatus, Pod

MIB = 2**20
MISMATCH = "IsolationMismatch"
State = Literal["unknown", "enforced", "mismatch"]
STATES: tuple[State, ...] = ("unknown", "enforced", "mismatch")
Limiter = Literal["driver", "library"]
"""Who limits the memory of a container."""
Key = tuple[str, str]
"""UID of the pod, and the runtime's ID of the container: a restarted container has another."""


class Limited(NamedTuple):
    """A running container that was given a memory limit of so many MiB on each of its GPUs."""

    pod: Pod
    container: str
    uuids: tuple[str, ...]
    mib: int
    by: Limiter = "driver"
    started: float = 0.0
    """When it started, in seconds since 1970, less what is below a second; 0 if the kubelet does not tell."""
    of_pod: Mapping[str, int] = {}
    """What its whole pod is limited to by GPU, where the helper limits pods."""


class Read(NamedTuple):
    """What is told of one GPU; the limit of the pod is asked for only where the container has none."""

    own: MemoryLimit | None
    pod: MemoryLimit | None = None


class Verdict(NamedTuple):
    """What the answers mean; the sentence is "" unless they differ from what was given."""

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
        limits, by_library = record.limits(uid), record.limits_by_library(uid)
        if not (limits or by_library) or pod.status.phase in ENDED:
            continue
        given, together = record.given(uid), of_pod(pod)
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            number, gpus = status.container_id.rpartition("//")[2], given.get(status.name, ())
            if not status.state.running or not number:
                continue
            if status.name in limits:
                found[uid, number] = Limited(pod, status.name, gpus, limits[status.name], of_pod=together)
            elif status.name in by_library:
                mib, started = by_library[status.name], _started(status)
                found[uid, number] = Limited(pod, status.name, gpus, mib, "library", started)
    return found


def _started(status: ContainerStatus) -> float:
    with suppress(ValueError):
        if status.state.running is not None and status.state.running.started_at:
            return timestamps.epoch_seconds(status.state.running.started_at)
    return 0.0


def verdict(given: Limited, read: Mapping[str, Read], indexes: Mapping[str, int]) -> Verdict:
    """Whether the limits that were read, by UUID, are what was given. `indexes`: of the GPUs, by UUID."""
    for uuid in given.uuids:
        if uuid not in read:
            continue
        (own, above), gpu = read[uuid], f"GPU {indexes.get(uuid, uuid)}"
        if own is None and above is not None:
            if above.hard != given.of_pod.get(uuid, 0) * MIB:
                told = f"the pod has a memory limit of {above.hard // MIB} MiB on {gpu}"
                return Verdict("mismatch", f"{told}: it was given {given.of_pod.get(uuid, 0)} MiB")
        elif own is None:
            has = "uses {} without the library" if given.by == "library" else "has no memory limit on {}"
            sentence = f"container {given.container} {has.format(gpu)}: it was given {given.mib} MiB"
            return Verdict("mismatch", sentence, unlimited=True)
        elif own.hard != given.mib * MIB:
            told = f"container {given.container} has a memory limit of {own.hard // MIB} MiB on {gpu}"
            return Verdict("mismatch", f"{told}: it was given {given.mib} MiB")
    return Verdict("unknown" if not read or set(given.uuids) - read.keys() else "enforced")
