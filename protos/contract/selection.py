"""Whether a GPU is one that a pod accepts: its annotations on model, UUID, memory, clock and compute capability."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from protos.contract.ask import Selection
from protos.contract.inventory import Gpu


def accepts(selection: Selection, gpu: Gpu) -> bool:
    """Whether the selection allows this GPU. Globs match without regard to case."""
    return (
        gpu.mem_mib >= selection.min_mem_mib
        and gpu.clock_mhz >= selection.min_clock_mhz
        and (selection.min_cc == (0, 0) or capability(gpu) >= selection.min_cc)
        and _matches(selection.models, gpu.model)
        and _matches(selection.uuids, gpu.uuid)
    )


def capability(gpu: Gpu) -> tuple[int, int]:
    """The GPU's compute capability, (0, 0) where unknown."""
    major, _, minor = gpu.cc.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


def _matches(patterns: Sequence[str], value: str) -> bool:
    if not patterns:
        return True
    value = value.lower()
    wanted = [pattern.lower() for pattern in patterns if not pattern.startswith("!")]
    unwanted = [pattern[1:].lower() for pattern in patterns if pattern.startswith("!")]
    if any(fnmatchcase(value, pattern) for pattern in unwanted):
        return False
    return not wanted or any(fnmatchcase(value, pattern) for pattern in wanted)
