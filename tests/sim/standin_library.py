"""Stands in for the library that limits a container (HAMi-core): it writes a region by its documented layout.

As documented: it opens the file that its variable names, writes a byte after the region, sets the limits from its
variables, and at last the mark that it is initialised. A region that is initialised keeps its limits, also from start
to start of a container. Programs get a slot before they use a GPU, and a program that ends frees it.

Source: Project-HAMi/HAMi-core (src/multiprocess), Project-HAMi/HAMi (pkg/monitor/nvidia).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

MAGIC, MAJOR, MINOR = 19920718, 1, 2
SIZE = 2_008_952
MAGIC_AT, MAJOR_AT, MINOR_AT, NUMBER_AT, UUIDS_AT = 0, 4, 8, 56, 64
LIMITS_AT, THREADS_AT, SLOTS_AT, COUNT_AT = 1600, 1728, 1856, 2_008_896
SLOT, USED, TOTAL = 1960, 64, 32
UNITS = {"g": 2**30, "m": 2**20, "k": 2**10}


def amount(text: str) -> int:
    """A limit as the library reads it, in bytes."""
    return int(text[:-1]) * UNITS[text[-1].lower()] if text and text[-1].lower() in UNITS else int(text or 0)


class Library:
    """The library in one container: its environment, its region, and the GPUs that it sees."""

    def __init__(self, region: Path, env: Mapping[str, str], gpus: Sequence[str]) -> None:
        self.path, self.env, self.gpus = region, env, gpus

    def load(self) -> None:
        """The first program of the container asks for GPUs."""
        if not self.path.exists():
            self.path.write_bytes(b"")
        self.put(SIZE, b"\0")
        if self.number(MAGIC_AT) == MAGIC:
            return
        common = amount(self.env.get("CUDA_DEVICE_MEMORY_LIMIT", ""))
        for gpu in range(16):
            limit = amount(self.env.get(f"CUDA_DEVICE_MEMORY_LIMIT_{gpu}", "")) or common
            self.put(LIMITS_AT + 8 * gpu, struct.pack("<Q", limit))
            self.put(THREADS_AT + 8 * gpu, struct.pack("<Q", int(self.env.get("CUDA_DEVICE_SM_LIMIT", 100))))
        self.put(MAJOR_AT, struct.pack("<ii", MAJOR, MINOR))
        self.put(COUNT_AT, struct.pack("<i", 0))
        self.put(MAGIC_AT, struct.pack("<i", MAGIC))

    def count_gpus(self) -> None:
        """Note the GPUs, which comes a little later."""
        self.put(NUMBER_AT, struct.pack("<Q", len(self.gpus)))
        for index, uuid in enumerate(self.gpus):
            self.put(UUIDS_AT + 96 * index, uuid.encode() + b"\0")

    def begin(self, pid: int, **used: int) -> None:
        """A program gets a slot; `used`: bytes by GPU, as `gpu0=…`."""
        number = self.number(COUNT_AT)
        self.put(SLOTS_AT + SLOT * number, struct.pack("<i", pid))
        for gpu, each in used.items():
            at = SLOTS_AT + SLOT * number + 8 + USED * int(gpu.removeprefix("gpu")) + TOTAL
            self.put(at, struct.pack("<Q", each))
        self.put(COUNT_AT, struct.pack("<i", number + 1))

    def end(self, pid: int) -> None:
        """A program ends: its slot stays, without a number."""
        for slot in range(self.number(COUNT_AT)):
            if self.number(SLOTS_AT + SLOT * slot) == pid:
                self.put(SLOTS_AT + SLOT * slot, struct.pack("<i", 0))

    def number(self, at: int) -> int:
        with self.path.open("rb") as file:
            file.seek(at)
            content = file.read(4)
        return int.from_bytes(content.ljust(4, b"\0"), "little", signed=True)

    def put(self, at: int, content: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(at)
            file.write(content)
