"""Which instance is at which place, for MIG instances that are made on demand. Pure.

The books have the place of an instance, and the driver its UUID. An instance belongs to the container whose processes
are on it: the pod of that container was promised the place. Instances of one container are alike, so it makes no
difference which of them is at which of its places.
"""

from collections.abc import Iterator, Mapping, Sequence

from deviceplugin.cgroups import Group
from deviceplugin.usage.holders import Holder
from deviceplugin.usage.places import GONE, Placed
from deviceplugin.usage.processes import Sample
from protos.contract import mig
from protos.contract.inventory import Gpu, Inventory
from protos.contract.on_demand import OnDemand

NOT_SHOWN = "not shown"
"""Trouble of a GPU, or of an instance, that the driver does not list."""


def placed(inventory: Inventory, holders: Sequence[Holder], by_uuid: Mapping[str, Placed]) -> list[tuple[Gpu, Placed]]:
    """The places that pods were promised, as GPUs, with the samples of the instances there."""
    if not inventory.layouts:
        return []
    promised = {promise.uuid for holder in holders for promise in holder.promises}
    gpus = [each for each in OnDemand(inventory).instances if each.uuid in promised]
    owners = {group: own for holder in holders for group, own in _owned(holder)}
    known = {gpu.uuid for gpu in inventory.gpus}
    made = [each for uuid, each in by_uuid.items() if uuid not in known and not each.sample.trouble]
    found: dict[str, Placed] = {}
    for each in made:
        name = next((name for name in _promised(each, owners) if name not in found), None)
        if name is not None:
            found[name] = _at(name, each)
    _add_listed_at_gpus(found, owners, by_uuid)
    idle = Placed(Sample("", trouble="" if len(made) >= len(gpus) else NOT_SHOWN))
    return [(gpu, found.get(gpu.uuid) or _at(gpu.uuid, idle)) for gpu in gpus]


def _owned(holder: Holder) -> Iterator[tuple[Group, tuple[str, ...]]]:
    """The containers of a pod, and the places that each was promised."""
    for id_, container in holder.containers.items():
        every = (promise.uuid for promise in holder.promises if promise.container == container)
        yield Group(holder.uid, id_), tuple(name for name in every if mig.place(name) is not None)


def _promised(at: Placed, owners: Mapping[Group, tuple[str, ...]]) -> Iterator[str]:
    """What the containers were promised whose processes are there."""
    for place, _ in at.places.values():
        if not isinstance(place, str):
            yield from owners.get(place, ())


def _add_listed_at_gpus(
    found: dict[str, Placed], owners: Mapping[Group, tuple[str, ...]], by_uuid: Mapping[str, Placed]
) -> None:
    """Add the processes that only the GPU's own list has: the instance may not be shown to us."""
    seen = {process.pid for each in found.values() for process in each.sample.processes}
    for uuid, gpu in by_uuid.items():
        for process in gpu.sample.processes:
            place, start = gpu.places.get(process.pid, (GONE, 0))
            own = () if isinstance(place, str) or process.pid in seen else owners.get(place, ())
            name = next((name for name in own if name.startswith(f"{uuid}/")), None)
            if name is not None:
                before = found.get(name, Placed(Sample(name)))
                sample = before.sample._replace(processes=(*before.sample.processes, process))
                found[name] = Placed(sample, {**before.places, process.pid: (place, start)})


def _at(name: str, placed: Placed) -> Placed:
    return placed._replace(sample=placed.sample._replace(uuid=name))
