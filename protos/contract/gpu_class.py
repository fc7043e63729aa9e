"""GpuClasses: named, cluster-wide selections of GPUs, which pods refer to."""

from __future__ import annotations

import re

import msgspec

from protos.contract import names, selection
from protos.contract.bounds import DESCRIPTION, GPU_AMOUNT
from protos.contract.codec import BAD_JSON
from protos.contract.objects import decode_raw
from protos.contract.selection import ANYTHING, Selection, SelectionError, read

API_VERSION = f"{names.DOMAIN}/v1alpha1"
KIND, PLURAL = "GpuClass", "gpuclasses"
CLASS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class GpuClass(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded class."""

    name: str
    selection: Selection = ANYTHING
    description: str = ""
    problem: str = ""
    """Why the spec cannot be read, "" if it can; a class with a problem selects nothing."""


class _Spec(msgspec.Struct, rename="camel"):
    models: tuple[str, ...] | None = None
    min_memory: str | int | None = None
    max_memory: str | int | None = None
    min_clock_mhz: int | None = msgspec.field(default=None, name="minClockMHz")
    min_compute_capability: str | None = None
    link: str | None = None
    numa_local: bool | None = None
    mig_profile: str | None = None
    isolation: str | None = None
    description: str | None = None


_SPEC = msgspec.json.Decoder(_Spec)


def decode(data: bytes) -> GpuClass:
    """A class from its JSON (bytes or msgspec.Raw); raises msgspec.DecodeError if its name cannot be read."""
    decoded = decode_raw(data)
    name = decoded.metadata.name
    try:
        spec = _SPEC.decode(decoded.spec)
        return GpuClass(name=name, selection=_selection(spec), description=(spec.description or "")[: DESCRIPTION.most])
    except BAD_JSON as error:
        return GpuClass(name=name, problem=f"spec cannot be read: {error}")


def _selection(spec: _Spec) -> Selection:
    parsed = Selection(
        models=read("models", spec.models or None, selection.globs, ()),
        min_mem_mib=read("minMemory", spec.min_memory, selection.memory, 0),
        max_mem_mib=read("maxMemory", spec.max_memory, _limit, 0),
        min_clock_mhz=read("minClockMHz", spec.min_clock_mhz, _clock, 0),
        min_cc=read("minComputeCapability", spec.min_compute_capability, selection.compute_capability, (0, 0)),
        link=read("link", spec.link, selection.link, selection.LINKS[0]),
        numa_local=spec.numa_local or False,
        profile=read("migProfile", spec.mig_profile, selection.mig_profile, ""),
        isolation=read("isolation", spec.isolation, selection.isolation, "any"),
    )
    if 0 < parsed.max_mem_mib < parsed.min_mem_mib:
        least, most = spec.min_memory, spec.max_memory
        raise SelectionError(f"maxMemory is {most!r}: expected no less than minMemory, which is {least!r}")
    return parsed


def _limit(quantity: str | int) -> int:
    amount = selection.memory(quantity)
    if not amount:
        raise SelectionError("an amount like 40Gi, more than zero")
    return amount


def _clock(mhz: int) -> int:
    if not 0 <= mhz <= GPU_AMOUNT.most:
        raise SelectionError("a clock in MHz, like 1400")
    return mhz
