"""Selections of GPUs by annotations and GpuClasses: their parsing, and matching against GPUs.

The parsers take user values and raise SelectionError with what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from protos.contract import mig
from protos.contract.bounds import DIGITS, GLOB, GLOBS
from protos.contract.inventory import Gpu
from protos.contract.isolation import DEMANDED, Demanded, stricter
from protos.contract.quantity import QuantityError, mebibytes, units
from protos.contract.remembered import Remembered

T = TypeVar("T")
Link = Literal["nvlink", "prefer", "any"]
LINKS: tuple[Link, ...] = ("prefer", "nvlink", "any")
"""The default first."""
MIB = 2**20
LEAST = 10**9
"""Bytes that every GPU has."""
WILD = frozenset("*?[")
"""Wildcard characters of globs."""


class SelectionError(ValueError):
    """An invalid value; the message is what was expected."""


class Selection(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The acceptable GPUs of a pod, and their links. Globs: a leading `!` excludes.

    A model without wildcards accepts every model that contains it, as users write `A100` for all A100s. A glob may
    leave out the first word of a model, its brand: `A100*` accepts `NVIDIA A100-SXM4-80GB`.
    """

    models: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Globs that the model must match besides `models`: those of the class, if the pod has its own."""
    uuids: tuple[str, ...] = ()
    min_mem_mib: int = 0
    max_mem_mib: int = 0
    """0: no limit."""
    min_clock_mhz: int = 0
    min_cc: tuple[int, int] = (0, 0)
    link: Link = "prefer"
    numa_local: bool = False
    """All GPUs of a container must be on one NUMA node."""
    spread: bool = False
    mixed: bool = False
    """The GPUs of one container, and those of equal members of a gang, may be of several models."""
    model: str = ""
    """The exact model that equal members of its gang have, "" for any."""
    profile: str = ""
    """The MIG profile of instances, "" for any GPU; in a pod's request its containers have it."""
    isolation: Demanded = "any"
    """The demand of a class, or of a pod while it is read: then the asks of its containers have it."""

    @property
    def length(self) -> int:
        """The number of characters of all globs and names."""
        return sum(map(len, (*self.models, *self.also, *self.uuids, self.model)))

    @property
    def selective(self) -> bool:
        """Whether it rejects GPUs, or more sets of GPUs than those of several models."""
        link = self.link if self.link == "nvlink" else "prefer"
        return msgspec.structs.replace(self, spread=False, mixed=False, link=link) != ANYTHING

    def narrowed(self, own: Selection, *, link_said: bool) -> Selection:
        """This selection of a class, narrowed by a pod's own; `link_said`: the pod has a link annotation."""
        both = bool(own.models and self.models and own.models != self.models)
        preferred = own.link if link_said else self.link
        return Selection(
            models=own.models or self.models,
            also=self.models if both else (),
            uuids=own.uuids,
            min_mem_mib=max(own.min_mem_mib, self.min_mem_mib),
            max_mem_mib=self.max_mem_mib,
            min_clock_mhz=max(own.min_clock_mhz, self.min_clock_mhz),
            min_cc=max(own.min_cc, self.min_cc),
            link="nvlink" if self.link == "nvlink" else preferred,
            numa_local=self.numa_local,
            spread=own.spread,
            mixed=own.mixed,
            profile=own.profile or self.profile,
            isolation=stricter(own.isolation, self.isolation),
        )


ANYTHING = Selection()
"""Accepts any GPU."""


# Parsing.


def read(key: str, value: object, parse: Callable[[Any], T], default: T) -> T:
    """The parsed value, or the default without one; raises SelectionError with the key, the value and the error."""
    if value is None:
        return default
    try:
        return parse(value)
    except SelectionError as error:
        told = ",".join(value) if isinstance(value, tuple) else str(value)
        raise SelectionError(f"{key} is {told[:60]!r}: expected {error}") from error


def globs(parts: Iterable[str]) -> tuple[str, ...]:
    """The globs, at least one."""
    patterns = tuple(_spaceless(part.strip()) for part in parts if part.strip())
    if not patterns:
        raise SelectionError("names or globs, separated by commas")
    if len(patterns) > GLOBS.most or any(len(pattern) > GLOB.most for pattern in patterns):
        raise SelectionError(f"at most {GLOBS.most} globs of at most {GLOB.most} characters")
    return patterns


def uuids(text: str) -> tuple[str, ...]:
    """Globs of UUIDs; an index excludes and accepts nothing."""
    names = [part.strip().removeprefix("!").strip().upper() for part in text.split(",") if part.strip()]
    if not names or not all(name.startswith(("GPU-", "MIG-")) or not WILD.isdisjoint(name) for name in names):
        raise SelectionError("UUIDs like GPU-5f0a or globs, separated by commas")
    return globs(text.split(","))


def _spaceless(pattern: str) -> str:
    """The glob without blanks behind its `!`. `!=A10` and `!!A10` would exclude nothing."""
    name = pattern.removeprefix("!").strip()
    if not name or name[0] in "!=":
        raise SelectionError("names or globs, separated by commas, with one ! before each that excludes")
    return f"!{name}" if pattern.startswith("!") else name


def memory(quantity: str | int) -> int:
    """A Kubernetes quantity of bytes, in MiB; less than every GPU has was meant in another unit."""
    try:
        amount, in_bytes = mebibytes(quantity), units(quantity)
    except QuantityError as error:
        raise SelectionError("an amount like 40Gi") from error
    if amount < 0:
        raise SelectionError("an amount like 40Gi, zero or more")
    if 0 < in_bytes < MIB and str(quantity).isdecimal():
        raise SelectionError(f"an amount with its unit: write {in_bytes}{'Gi' if in_bytes < 1024 else 'Mi'}")
    if 0 < in_bytes < LEAST:
        raise SelectionError("an amount like 40Gi, at least 1G")
    return amount


def compute_capability(text: str) -> tuple[int, int]:
    """A CUDA compute capability, major.minor."""
    major, _, minor = text.partition(".")
    if not (is_number(major) and is_number(minor or "0")):
        raise SelectionError("a compute capability like 8.0")
    return int(major), int(minor or 0)


def link(text: str) -> Link:
    """The link between the GPUs of one container."""
    for each in LINKS:
        if text == each:
            return each
    raise SelectionError(", ".join(sorted(LINKS)))


def isolation(text: str) -> Demanded:
    """The isolation that a pod, class or namespace demands for parts."""
    for each in DEMANDED:
        if text == each:
            return each
    raise SelectionError(", ".join(DEMANDED))


def mig_profile(text: str) -> str:
    """The name of a MIG profile, as the driver writes it."""
    found = mig.profile(text)
    if found is None:
        raise SelectionError("a MIG profile like 1g.10gb")
    return found.name


def is_number(text: str) -> bool:
    """Whether this is a whole number of at most DIGITS digits."""
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS.most


# Matching.


def suits(selection: Selection, gpu: Gpu) -> bool:
    """Whether the selection accepts GPUs of this kind, apart from UUIDs. Globs ignore case."""
    return (
        gpu.mem_mib >= selection.min_mem_mib
        and not 0 < selection.max_mem_mib < gpu.mem_mib
        and gpu.clock_mhz >= selection.min_clock_mhz
        and (selection.min_cc == (0, 0) or capability(gpu) >= selection.min_cc)
        and selection.model in ("", gpu.model)
        and (not selection.profile or selection.profile == gpu.mig)
        and matches(selection.models, gpu.model, inside=True)
        and matches(selection.also, gpu.model, inside=True)
    )


def capability(gpu: Gpu) -> tuple[int, int]:
    """The GPU's compute capability, (0, 0) if unknown."""
    major, _, minor = gpu.cc.partition(".")
    return (int(major), int(minor)) if is_number(major) and is_number(minor) else (0, 0)


def matches(patterns: Sequence[str], value: str, *, inside: bool = False) -> bool:
    """Whether these globs accept the value; `inside`: a plain name accepts every value that contains it."""
    return not patterns or compiled(tuple(patterns), inside=inside).lets(value)


class Globs(NamedTuple):
    """Compiled globs in lower case. Most globs of UUIDs are plain names."""

    wanted: frozenset[str]
    unwanted: frozenset[str]
    wild: tuple[re.Pattern[str], ...]
    never: tuple[re.Pattern[str], ...]

    def lets(self, value: str) -> bool:
        """Whether they accept the value."""
        value = value.lower()
        if value in self.unwanted or any(glob.match(value) for glob in self.never):
            return False
        if value in self.wanted or not (self.wanted or self.wild):
            return True
        return any(glob.match(value) for glob in self.wild)

    def may_let(self, values: frozenset[str]) -> bool:
        """Whether they may accept any of these lower-case values; cheap, and exact for plain names."""
        return bool(self.wild) or not self.wanted or not self.wanted.isdisjoint(values)

    def among(self, values: Iterable[str]) -> list[str]:
        """The accepted values."""
        if self.wanted and not (self.wild or self.unwanted or self.never):
            return [value for value in values if value.lower() in self.wanted]
        return [value for value in values if self.lets(value)]


_compiled: Remembered[tuple[tuple[str, ...], bool], Globs] = Remembered(1024, 2**20, lambda key: sum(map(len, key[0])))
"""By globs as written, and whether plain names match inside values; a compiled glob weighs some ten times as much."""


def compiled(patterns: tuple[str, ...], *, inside: bool = False) -> Globs:
    """These globs, compiled; `inside`: of models, where a plain name accepts every value that contains it."""
    key = patterns, inside
    result = _compiled.get(key)
    if result is None:
        wanted = [_glob(each, inside) for each in patterns if not each.startswith("!")]
        unwanted = [_glob(each[1:], inside) for each in patterns if each.startswith("!")]
        result = Globs(_names(wanted), _names(unwanted), _wild(wanted, inside), _wild(unwanted, inside))
        _compiled.put(key, result)
    return result


def _glob(text: str, inside: bool) -> str:
    return f"*{text.lower()}*" if inside and WILD.isdisjoint(text) else text.lower()


def _names(globs: Iterable[str]) -> frozenset[str]:
    return frozenset(glob for glob in globs if WILD.isdisjoint(glob))


def _wild(globs: Iterable[str], inside: bool) -> tuple[re.Pattern[str], ...]:
    brand = r"(?:\S+ )?" if inside else ""
    return tuple(re.compile(brand + translate(glob)) for glob in globs if not WILD.isdisjoint(glob))
