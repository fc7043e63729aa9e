"""Whether every GPU has a device of the Container Device Interface, so that the runtime can bring it into a container.

A container whose CDI device no specification names cannot be created. So a GPU without one is offered to nobody.
Source: cncf-tags/container-device-interface, SPEC.md; the folders are the defaults of containerd and CRI-O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog
import yaml

from deviceplugin.machine import Machine, Source, Xid
from protos.contract import bounds

log = structlog.get_logger()

SPEC_DIRS = (Path("/etc/cdi"), Path("/var/run/cdi"))
SUFFIXES = (".json", ".yaml")
"""Files of other names are no specifications."""
KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_-]*")
NO_DEVICE = "no-cdi-device"

Stamp = tuple[int, int, int]


class _Device(msgspec.Struct, frozen=True):
    name: str | int
    """YAML reads an index as a number."""


class _Spec(msgspec.Struct, frozen=True):
    kind: str
    devices: list[_Device] = []


class CdiSource:
    """A source whose GPUs are in trouble while no CDI device of this kind has their UUID."""

    def __init__(self, source: Source, kind: str, folders: Sequence[Path]) -> None:
        self.source, self.kind, self.folders = source, kind, folders
        self.period = source.period
        self._read: dict[Path, tuple[Stamp, frozenset[str]]] = {}
        """What each file names, while it stays as it is."""
        self._told: frozenset[str] = frozenset()

    def read(self) -> Machine:
        """The machine as it is now; raises SourceError."""
        machine = self.source.read()
        known = self._names()
        missing = frozenset(gpu.uuid for gpu in machine.gpus if gpu.uuid not in known)
        if missing - self._told:
            where = ", ".join(map(str, self.folders))
            expected = f"expected devices {self.kind}=UUID in {where}; `nvidia-ctk cdi generate` writes them"
            log.warning("gpus_without_cdi_device", gpus=sorted(missing), sentence=expected)
        self._told = missing
        gpus = (
            msgspec.structs.replace(gpu, trouble=gpu.trouble or NO_DEVICE) if gpu.uuid in missing else gpu
            for gpu in machine.gpus
        )
        return msgspec.structs.replace(machine, gpus=tuple(gpus))

    def poll(self, timeout: float) -> list[Xid]:
        return self.source.poll(timeout)

    def close(self) -> None:
        self.source.close()

    def _names(self) -> frozenset[str]:
        """The names of all devices of our kind."""
        files = [file for folder in self.folders for file in _files(folder)]
        self._read = {file: found for file in files if (found := self._file(file)) is not None}
        return frozenset[str]().union(*(found for _, found in self._read.values()))

    def _file(self, file: Path) -> tuple[Stamp, frozenset[str]] | None:
        """What a file names, as of when; None where it has gone."""
        try:
            status = file.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            before = self._read.get(file)
            return before if before is not None and before[0] == stamp else (stamp, self._devices(file))
        except OSError:
            return None

    def _devices(self, file: Path) -> frozenset[str]:
        """The devices of our kind that a file names, none where it cannot be understood."""
        with file.open("rb") as opened:
            text = opened.read(bounds.CDI_SPEC_BYTES.most + 1)
        try:
            if len(text) > bounds.CDI_SPEC_BYTES.most:
                raise ValueError(bounds.CDI_SPEC_BYTES.exceeded(len(text)))
            spec = msgspec.convert(_decoded(file, text), _Spec)
        except (ValueError, yaml.YAMLError, RecursionError) as error:
            log.warning("cdi_specification_not_read", file=str(file), error=str(error)[:200])
            return frozenset()
        return frozenset(str(device.name) for device in spec.devices) if spec.kind == self.kind else frozenset()


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
    except OSError:
        return []


def _decoded(file: Path, text: bytes) -> Any:
    """The file's content; raises msgspec.DecodeError (a ValueError) or YAMLError."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return msgspec.json.decode(text) if file.suffix == ".json" else yaml.load(text, loader)
