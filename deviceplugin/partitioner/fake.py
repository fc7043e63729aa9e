"""The driver of fake GPUs, as the partitioner uses it: `--fake PROFILE`.

What it has made is in a file, so that it outlives the process like instances of a real GPU. GPUs have the profiles and
places of an A100, H100 or H200. Source: NVIDIA Multi-Instance GPU User Guide, Supported MIG Profiles.
"""

import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from deviceplugin.fake import KEPT_MIB, FakeSource
from deviceplugin.machine import Gpu
from deviceplugin.mig.instances import MIB, gigabytes
from deviceplugin.partitioner.partitioner import Found, chosen
from deviceplugin.partitioner.protocol import Device, Kind, Number, PartitionError
from protos import files
from protos.contract import codec, mig
from protos.contract.bounds import MIG_HELD, MIG_JOURNAL
from protos.contract.inventory import Uuid
from protos.files import FileError

NAME = "fake-driver.json"
KINDS = (
    ("1g.{}gb", 1, range(7), 7),
    ("1g.{}gb+me", 1, range(7), 1),
    ("1g.{}gb", 2, range(0, 8, 2), 4),
    ("2g.{}gb", 2, range(0, 6, 2), 3),
    ("3g.{}gb", 4, range(0, 8, 4), 2),
    ("4g.{}gb", 4, range(1), 1),
    ("7g.{}gb", 8, range(1), 1),
)
"""Name of a profile by its memory, memory slices, first memory slices, and how many one GPU can have."""


class _Instance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    gi: Number
    device: str = ""
    """Its UUID, "" without a compute instance."""


_Instances = Annotated[dict[Uuid, _Instance], msgspec.Meta(max_length=MIG_HELD.most)]


class FakeDriver:
    """Instances of the GPUs of a profile that are `dynamic`."""

    def __init__(self, source: FakeSource, given: Collection[str], folder: Path) -> None:
        """`given`: the GPUs that are given over, by UUID or index, or `all`. Raises FileError."""
        self._source, self._given, self._path = source, given, folder / NAME
        self._instances = files.read(self._path, _parse, MIG_JOURNAL) if files.stamp(self._path) else {}

    def gpus(self) -> Mapping[str, tuple[Kind, ...]]:
        """The GPUs in MIG mode that are given over, by UUID, and what can be made of each if it is empty."""
        given = (gpu for gpu in self._source.given_over() if chosen(self._given, gpu.index, gpu.uuid))
        return {gpu.uuid: kinds(gpu) for gpu in given}

    def found(self, gpu: str) -> list[Found]:
        """All instances of a GPU."""
        every = ((mig.place(name), each) for name, each in self._instances.items())
        return [
            Found(place, each.gi, Device(each.device, each.gi, 0) if each.device else None)
            for place, each in every
            if place is not None and place.gpu == gpu
        ]

    def make(self, place: mig.Place) -> int:
        """Make a GPU instance at this place; returns its ID."""
        here = self.found(place.gpu)
        kind = next((each for each in self.gpus().get(place.gpu, ()) if each.profile == place.profile), None)
        alike = sum(each.place.profile == place.profile for each in here)
        if kind is None or alike >= kind.most or any(place.overlaps(each.place) for each in here):
            raise PartitionError(f"the driver does not make {place.name} (Insufficient Resources)")
        taken = {each.gi for each in here}
        gi = next(number for number in range(1, len(taken) + 2) if number not in taken)
        self._write({**self._instances, place.name: _Instance(gi)})
        return gi

    def complete(self, place: mig.Place, gi: int) -> Device:
        """Make the compute instance of a GPU instance."""
        device = f"MIG-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{gi}.{place.name}')}"
        self._write({**self._instances, place.name: _Instance(gi, device)})
        return Device(device, gi, 0)

    def destroy(self, gpu: str, gi: int) -> None:
        """Destroy a GPU instance."""
        names = {each.place.name for each in self.found(gpu) if each.gi == gi}
        self._write({name: each for name, each in self._instances.items() if name not in names})

    def _write(self, instances: dict[str, _Instance]) -> None:
        beside = self._path.with_suffix(".new")
        try:
            beside.write_bytes(msgspec.json.encode(instances))
            beside.replace(self._path)
        except OSError as error:
            raise PartitionError(f"{self._path} cannot be written ({error.strerror})") from error
        self._instances = instances


def kinds(gpu: Gpu) -> tuple[Kind, ...]:
    """What can be made of a fake GPU."""
    found = []
    for form, size, starts, most in KINDS:
        memory = gigabytes(gpu.mem_mib * size // mig.MEMORY_SLICES, gpu.mem_mib * MIB)
        mem_mib = min(gpu.mem_mib, memory * 1024 - KEPT_MIB)
        found.append(Kind(form.format(memory), mem_mib, size, tuple(starts), most))
    return tuple(found)


def _parse(content: bytes) -> dict[str, _Instance]:
    try:
        return msgspec.json.decode(content, type=_Instances)
    except codec.BAD_JSON as error:
        raise FileError(f"expected the instances of a fake driver ({error})") from error
