"""The file that says which instances are ours: what is not in it belongs to the operator, and is never destroyed.

A place is written before its instance is made, with an empty UUID, and taken out after it was destroyed. So whenever
the process ends, no instance of ours is missing in the file. The file is replaced as a whole.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from deviceplugin.helper_lines import Version
from deviceplugin.partitioner.protocol import PartitionError
from protos import files
from protos.contract import codec
from protos.contract.bounds import GPU_TEXT, MIG_HELD, MIG_JOURNAL
from protos.contract.inventory import Uuid
from protos.files import FileError

NAME = "instances.json"
Text = Annotated[str, msgspec.Meta(max_length=GPU_TEXT.most)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    v: Version = codec.VERSION
    ours: Annotated[dict[Uuid, Text], msgspec.Meta(max_length=MIG_HELD.most)] = {}


class Journal:
    """The places of our instances, and the UUIDs of those that were made."""

    def __init__(self, folder: Path) -> None:
        """Raises FileError for a file that cannot be read: without it nothing may be destroyed or made."""
        self._path = folder / NAME
        self._ours: dict[str, str] = {}
        if files.stamp(self._path):
            self._ours = dict(files.read(self._path, _parse, MIG_JOURNAL).ours)

    @property
    def ours(self) -> Mapping[str, str]:
        """The UUID by place, "" for one that may or may not exist."""
        return self._ours

    def note(self, place: str, uuid: str = "") -> None:
        """Write that an instance at this place is ours; raises PartitionError, and then nothing is noted."""
        self._write({**self._ours, place: uuid})

    def drop(self, place: str) -> None:
        """Write that none at this place is; raises PartitionError."""
        self._write({name: uuid for name, uuid in self._ours.items() if name != place})

    def _write(self, ours: dict[str, str]) -> None:
        if ours == self._ours:
            return
        beside = self._path.with_suffix(".new")
        try:
            with beside.open("wb") as file:
                file.write(msgspec.json.encode(_File(ours=ours)))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise PartitionError(f"{self._path} cannot be written ({error.strerror})") from error
        self._ours = ours


def _parse(content: bytes) -> _File:
    try:
        return msgspec.json.decode(content, type=_File)
    except codec.BAD_JSON as error:
        raise FileError(f"expected the instances of the partitioner ({error})") from error
