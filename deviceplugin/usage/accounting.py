"""Used and promised, per container and GPU: samples of the driver, places of processes and promises, together. Pure.

Seconds are those of a monotonic clock. A container is active on a GPU while a process of it takes SM time. Where the
driver does not tell SM time, it is active while it has a process there.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from deviceplugin.usage import on_demand
from deviceplugin.usage.holders import Holder, Promise
from deviceplugin.usage.places import GONE, Place, Placed
from deviceplugin.usage.processes import Sample
from protos.contract import mig
from protos.contract.bounds import OWNERS
from protos.contract.inventory import Gpu, Inventory
from protos.contract.measured import INSTANCE, OUTSIDE, WHOLE, Use

MIB = 2**20
PAUSE_S = 120.0
"""The longest time that counts between two looks: a process that was stopped does not know what was in between."""
KEPT_S = 3600.0
"""So long the time of an owner without pods stays shown, that Prometheus has surely read the last of it."""


class Key(NamedTuple):
    """A container on a GPU; no pod and no container: all that is in none."""

    uid: str
    container: str
    uuid: str


class Owner(NamedTuple):
    """Whose time on GPUs is counted."""

    namespace: str
    queue: str
    owner: str


class Time(msgspec.Struct):
    """GPU-seconds of an owner. `sm` is None as long as no driver told it."""

    promised: float = 0.0
    memory: float = 0.0
    sm: float | None = None
    seen: float = 0.0
    """When it last had a pod."""


class _Part(msgspec.Struct):
    """What the processes of one container use of one GPU."""

    used: int | None = 0
    sm: float | None = None
    processes: int = 0


class Accounting:
    """Remembers who was active when, and sums up GPU-seconds."""

    def __init__(self) -> None:
        self.times: dict[Owner, Time] = {}
        self._active: dict[Key, float] = {}
        self._starts: dict[tuple[str, int], int] = {}
        """Of the processes of the last look, by GPU and pid."""
        self._before: float | None = None
        self._known: frozenset[str] = frozenset()
        """UIDs of the pods of the last look."""

    def look(
        self, now: float, inventory: Inventory, holders: Sequence[Holder], placed: Iterable[Placed]
    ) -> tuple[Use, ...]:
        """One row for each container and GPU, and the sums continued."""
        by_uuid = {each.sample.uuid: each for each in placed}
        rows: list[Use] = []
        active: dict[Key, float] = {}
        starts: dict[tuple[str, int], int] = {}
        promised = _promises(holders)
        names = {(holder.uid, id_): name for holder in holders for id_, name in holder.containers.items()}
        pods = {holder.uid: holder for holder in holders}
        made = on_demand.placed(inventory, holders, by_uuid)
        by_uuid.update((gpu.uuid, each) for gpu, each in made)
        gpus = (*inventory.gpus, *(gpu for gpu, _ in made))
        on_instances = _on_instances(gpus, by_uuid)
        for gpu in gpus:
            here = by_uuid.get(gpu.uuid, Placed(Sample(gpu.uuid, trouble=on_demand.NOT_SHOWN)))
            here = _without(here, on_instances.get(gpu.index, frozenset()))
            parts = self._parts(here, names, starts)
            keys = dict.fromkeys([*promised.get(gpu.uuid, ()), *parts])
            for key in keys:
                promise, part = promised.get(gpu.uuid, {}).get(key), parts.get(key, _none(here.sample))
                unknown, idle = bool(here.sample.trouble), None
                if key.container:
                    doing = bool(part.sm) if part.sm is not None else bool(part.processes)
                    last = now if doing or unknown else self._active.get(key, now)
                    active[key], idle = last, None if unknown else now - last
                rows.append(_row(pods.get(key.uid), key, gpu, inventory, promise, part, idle))
        self._active, self._starts = active, starts
        self._count(now, gpus, pods, rows)
        return tuple(rows)

    def _parts(
        self, placed: Placed, names: Mapping[tuple[str, str], str], starts: dict[tuple[str, int], int]
    ) -> dict[Key, _Part]:
        """What the containers use of one GPU; notes the starts of its processes."""
        found: dict[Key, _Part] = {}
        sample = placed.sample
        for process in sample.processes:
            place, start = placed.places.get(process.pid, (GONE, 0))
            if place == GONE:
                continue
            part = found.setdefault(_key(place, names, sample.uuid), _none(sample))
            part.processes += 1
            part.used = None if part.used is None or process.memory is None else part.used + process.memory
            starts[sample.uuid, process.pid] = start
            another = self._starts.get((sample.uuid, process.pid), start) != start
            if part.sm is not None and sample.sm is not None and not another:
                part.sm = min(1.0, part.sm + sample.sm.get(process.pid, 0.0))
        return found

    def _count(self, now: float, gpus: Sequence[Gpu], pods: Mapping[str, Holder], rows: Iterable[Use]) -> None:
        """Add the time since the last look for the pods that were there then."""
        passed = 0.0 if self._before is None else min(PAUSE_S, now - self._before)
        memory = {gpu.uuid: max(1, gpu.mem_mib * MIB) for gpu in gpus}
        part = {gpu.uuid: gpu.slices / mig.SLICES for gpu in gpus}
        for pod in pods.values():
            if pod.asks:
                time = self.times.setdefault(_owner(pod), Time())
                time.seen = now
                if pod.uid in self._known:
                    time.promised += passed * sum(pod.parts.values())
        for row in rows:
            user = pods.get(row.uid)
            if user is None or not user.asks or user.uid not in self._known:
                continue
            time = self.times[_owner(user)]
            time.memory += passed * part[row.uuid] * min(1.0, (row.used or 0) / memory[row.uuid])
            if row.sm is not None:
                time.sm = (time.sm or 0.0) + passed * part[row.uuid] * row.sm
        self._before, self._known = now, frozenset(pods)
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Drop owners that ended long ago, and the oldest of too many."""
        for owner in [owner for owner, time in self.times.items() if now - time.seen > KEPT_S]:
            del self.times[owner]
        for owner in sorted(self.times, key=lambda owner: -self.times[owner].seen)[OWNERS.most :]:
            del self.times[owner]


def _on_instances(gpus: Iterable[Gpu], by_uuid: Mapping[str, Placed]) -> dict[int, frozenset[int]]:
    """The processes on the MIG instances of each GPU, by its index. The list of their GPU may have them, too."""
    found: dict[int, frozenset[int]] = {}
    for gpu in gpus:
        number = mig.gpu_of(gpu.index) if gpu.profile else None
        if number is not None and gpu.uuid in by_uuid:
            pids = (process.pid for process in by_uuid[gpu.uuid].sample.processes)
            found[number] = found.get(number, frozenset()).union(pids)
    return found


def _without(placed: Placed, pids: frozenset[int]) -> Placed:
    if not pids:
        return placed
    left = tuple(process for process in placed.sample.processes if process.pid not in pids)
    return placed._replace(sample=placed.sample._replace(processes=left))


def _promises(holders: Iterable[Holder]) -> dict[str, dict[Key, Promise]]:
    """By GPU."""
    found: dict[str, dict[Key, Promise]] = defaultdict(dict)
    for holder in holders:
        for promise in holder.promises:
            found[promise.uuid][Key(holder.uid, promise.container, promise.uuid)] = promise
    return found


def _key(place: Place, names: Mapping[tuple[str, str], str], uuid: str) -> Key:
    if isinstance(place, str) or (place.pod, place.container) not in names:
        return Key("", "", uuid)
    return Key(place.pod, names[place.pod, place.container], uuid)


def _none(sample: Sample) -> _Part:
    """No processes."""
    if sample.trouble:
        return _Part(used=None)
    return _Part(sm=None if sample.sm is None else 0.0)


def _row(
    pod: Holder | None,
    key: Key,
    gpu: Gpu,
    inventory: Inventory,
    promise: Promise | None,
    part: _Part,
    idle: float | None,
) -> Use:
    isolation = inventory.enforced
    whole = promise is not None and promise.whole
    use = Use(
        container=key.container or OUTSIDE,
        uuid=gpu.uuid,
        gpu=gpu.index,
        model=gpu.model,
        used=part.used,
        sm=part.sm,
        processes=part.processes,
    )
    if pod is None:
        return use
    return msgspec.structs.replace(
        use,
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        queue=pod.queue,
        owner=pod.owner,
        whole=whole,
        asks=pod.asks,
        promised=promise.mem_mib * MIB if promise else 0,
        idle=idle,
        level=(INSTANCE if gpu.profile else WHOLE) if whole else str(isolation) if promise else "",
        enforced=whole or bool(promise and isolation.memory),
    )


def _owner(pod: Holder) -> Owner:
    return Owner(pod.namespace, pod.queue, pod.owner)
