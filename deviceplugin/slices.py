"""What counts of the configuration file of NVIDIA's plugin: replicas of GPUs, and the strategy for MIG instances.

Source: github.com/NVIDIA/k8s-device-plugin, "Shared access to GPUs with CUDA time-slicing", version v1 of the file.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from deviceplugin.mig.strategy import Strategy
from protos import files
from protos.contract import names
from protos.files import FileError

VERSION = "v1"
VENDOR = "nvidia.com/"


class TimeSlicing(msgspec.Struct, frozen=True):
    """How GPUs are served as replicas, by default not, and the file's strategy for MIG."""

    replicas: dict[str, int] = {}
    """Replicas of one GPU, by the name of the served resource."""
    single: bool = False
    """A container may ask for one replica at most."""
    mig: Strategy = Strategy.NONE


class _Resource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    replicas: Annotated[int, msgspec.Meta(ge=2)]
    rename: str = ""
    devices: Any = "all"


class _Sharing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    resources: tuple[_Resource, ...] = ()
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False


class _Modes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    time_slicing: _Sharing | None = None
    mps: Any = None


class _Flags(msgspec.Struct, frozen=True, rename="camel"):
    mig_strategy: Strategy | None = None


class _File(msgspec.Struct, frozen=True):
    version: str
    flags: _Flags | None = None
    sharing: _Modes | None = None


def read(path: Path, resources: names.Resources, slices_per_gpu: int) -> TimeSlicing:
    """What counts of a configuration file; raises FileError."""
    return files.read(path, lambda content: parse(content, resources, slices_per_gpu))


def parse(content: bytes, resources: names.Resources, slices_per_gpu: int) -> TimeSlicing:
    """What counts of a file's content; raises FileError."""
    file = files.convert(content, _File)
    if file.version != VERSION:
        raise FileError(f"version is {file.version[:40]!r}: expected {VERSION!r}")
    if file.sharing is not None and file.sharing.mps is not None:
        raise FileError("sharing.mps is not served: use sharing.timeSlicing, or ask for gpu-mem")
    slicing = (file.sharing and file.sharing.time_slicing) or _Sharing()
    replicas: dict[str, int] = {}
    for resource in slicing.resources:
        served = _served(resource, slicing.rename_by_default, resources)
        if served in replicas:
            raise FileError(f"{served} is listed twice")
        if resource.replicas > slices_per_gpu:
            raise FileError(f"{resource.replicas} replicas of {served}: a GPU has {slices_per_gpu} slices")
        replicas[served] = resource.replicas
    mig = (file.flags and file.flags.mig_strategy) or Strategy.NONE
    return TimeSlicing(replicas, slicing.fail_requests_greater_than_one, mig)


def _served(resource: _Resource, rename: bool, resources: names.Resources) -> str:
    name = resource.name if "/" in resource.name else VENDOR + resource.name
    if name != resources.whole:
        raise FileError(f"resource {name} cannot be time-sliced: expected {resources.whole}")
    if resource.devices != "all":
        raise FileError(f'devices is {resource.devices!r}: expected "all", since every GPU has the same replicas')
    served = resource.rename or (f"{name}.shared" if rename else name)
    served = served if "/" in served else VENDOR + served
    if served not in (resources.whole, resources.shared):
        raise FileError(f"{name} renamed to {served}: expected {resources.shared}")
    return served
