"""Whether every GPU has a device of the Container Device Interface, so that the runtime can give it to a container.

The runtime cannot create a container whose CDI device is in no specification. So a GPU or MIG instance without a CDI
device is sick. A GPU in MIG mode needs none. `nvidia-ctk cdi generate` names devices by UUID too, also MIG instances.
Source: cncf-tags/container-device-interface, SPEC.md; the folders are the defaults of containerd and CRI-O.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import structlog

from deviceplugin.machine import Machine, Source
from protos import files
from protos.contract.bounds import CDI_SPEC_BYTES
from protos.contract.codec import BAD_JSON
from protos.contract.reason import Reason

log = structlog.get_logger()

SPEC_DIRS = (Path("/etc/cdi"), Path("/var/run/cdi"))
SUFFIXES = (".json", ".yaml")
"""Other files are no specifications."""
KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_-]*")
NO_DEVICE = "no-cdi-device"


class _Device(msgspec.Struct, frozen=True):
    name: str | int
    """YAML reads an index as a number."""


class _Spec(msgspec.Struct, frozen=True):
    kind: str
    devices: list[_Device] = []


_json: Callable[[bytes], _Spec] = msgspec.json.Decoder(_Spec).decode
_yaml: Callable[[bytes], _Spec] = partial(files.convert, into=_Spec)


class CdiSource:
    """A source whose GPUs are in trouble while no CDI device of this kind has their UUID."""

    def __init__(self, source: Source, kind: str, folders: Sequence[Path]) -> None:
        self.source, self.kind, self.folders = source, kind, folders
        self.period, self.poll, self.close = source.period, source.poll, source.close
        self.memory_limit = source.memory_limit
        self._read: dict[Path, tuple[files.Stamp, frozenset[str]]] = {}
        """The devices of each file, and its stamp when it was read."""
        self._logged: frozenset[str] = frozenset()

    @property
    def trouble(self) -> Reason | None:
        """That of the source."""
        return self.source.trouble

    def read(self) -> Machine:
        """The machine as it is now; raises SourceError."""
        machine = self.source.read()
        devices = self._devices()
        missing = frozenset(gpu.uuid for gpu in machine.gpus if not gpu.mig and gpu.uuid not in devices)
        if missing - self._logged:
            folders = ", ".join(map(str, self.folders))
            expected = f"expected devices {self.kind}=UUID in {folders}; `nvidia-ctk cdi generate` writes them"
            log.warning("gpus_without_cdi_device", gpus=sorted(missing), sentence=expected)
        self._logged = missing
        gpus = (
            msgspec.structs.replace(gpu, trouble=gpu.trouble or NO_DEVICE) if gpu.uuid in missing else gpu
            for gpu in machine.gpus
        )
        return msgspec.structs.replace(machine, gpus=tuple(gpus))

    def _devices(self) -> frozenset[str]:
        """The names of all devices of our kind. Only changed files are read."""
        before, self._read = self._read, {}
        for file in (file for folder in self.folders for file in _files(folder)):
            if stamp := files.stamp(file):
                known = before.get(file)
                self._read[file] = known if known and known[0] == stamp else (stamp, self._parse(file))
        return frozenset[str]().union(*(devices for _, devices in self._read.values()))

    def _parse(self, file: Path) -> frozenset[str]:
        """The devices of our kind in a file, none if it cannot be used."""
        try:
            spec = files.read(file, _json if file.suffix == ".json" else _yaml, CDI_SPEC_BYTES)
        except BAD_JSON as error:
            log.warning("cdi_specification_not_read", file=str(file), error=str(error)[:200])
            return frozenset()
        return frozenset(str(device.name) for device in spec.devices) if spec.kind == self.kind else frozenset()


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
    except OSError:
        return []
