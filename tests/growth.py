"""How much is kept: counts what can be reached from some objects, by the path that leads there.

A path names attributes; `[]` stands for any entry of a container, so that all entries of one kind count together.
"""

from __future__ import annotations

import functools
import gc
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from types import BuiltinMethodType, CellType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

from protos.contract.remembered import Remembered

OURS = ("extender", "gangfilter", "protos", "deviceplugin", "sortedcontainers")
"""Packages into whose objects the walk goes; others' are left alone."""
CONTAINERS = (dict, list, tuple, set, frozenset, deque)
LONG = 64
"""Bits of an integer that is no longer a mere number."""
NAMES = 48
"""Characters that make no difference: a name counts at the first path that leads to it, and that may be another."""

Sizes = Counter[str]
"""Entries of containers by path; characters of texts, and bytes of long integers, by path and `…`."""


def sizes(**roots: Any) -> Sizes:
    """What is kept by these. What several paths lead to counts at the first one, the shortest."""
    found: Sizes = Counter()
    seen: set[int] = set()
    alive: list[Any] = []  # what the walk itself makes must not lend its identity to something else
    ahead = deque(roots.items())
    while ahead:
        path, thing = ahead.popleft()
        weight = _weight(thing)
        if weight is not None:
            if weight and id(thing) not in seen:
                seen.add(id(thing))
                found[f"{path}…"] += weight
            continue
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        alive.append(thing)
        if isinstance(thing, CONTAINERS):
            found[path] += len(thing)
        ahead.extend((f"{path}{step}", inner) for step, inner in _inside(thing))
    return found


def _weight(thing: Any) -> int | None:
    """Of a text or number; None of anything else."""
    if isinstance(thing, str | bytes):
        return len(thing)
    if isinstance(thing, bool | float | None):
        return 0
    if isinstance(thing, int):
        return thing.bit_length() // 8 if thing.bit_length() > LONG else 0
    return None


def _inside(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, Mapping):
        for key, value in list(thing.items()):
            yield "[k]", key
            yield "[]", value
    if isinstance(thing, CONTAINERS) and not isinstance(thing, dict):
        fields = getattr(thing, "_fields", None)
        yield from zip((f".{name}" for name in fields), thing, strict=True) if fields else (("[]", x) for x in thing)
    if isinstance(thing, MethodType):
        yield "", thing.__self__
    elif isinstance(thing, functools.partial):
        yield "()", (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, FunctionType):
        yield from ((f"<{thing.__name__}>", cell) for cell in thing.__closure__ or ())
    elif isinstance(thing, CellType):
        yield "", _content(thing)
    elif isinstance(thing, GeneratorType):
        yield from ((f"<{thing.__name__}>.{name}", value) for name, value in _locals(thing).items())
    elif _ours(thing):
        yield from ((f".{name}", value) for name, value in _attributes(thing))


def _ours(thing: Any) -> bool:
    if isinstance(thing, type | ModuleType | BuiltinMethodType):
        return False
    return any(each.__module__.partition(".")[0] in OURS for each in type(thing).__mro__)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _locals(generator: GeneratorType[Any, Any, Any]) -> Mapping[str, Any]:
    return generator.gi_frame.f_locals if generator.gi_frame is not None else {}


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    names = dict.fromkeys(name for each in type(thing).__mro__ for name in getattr(each, "__slots__", ()))
    for name in (*names, *vars(thing)) if hasattr(thing, "__dict__") else names:
        yield name, getattr(thing, name, None)


def caches() -> Mapping[str, Any]:
    """All functions of ours that remember what they returned, by module and name."""
    kind = type(functools.lru_cache(maxsize=1)(len))
    known = (thing for thing in gc.get_objects() if isinstance(thing, kind))
    return {f"{each.__module__}.{each.__name__}": each for each in known if each.__module__.split(".")[0] in OURS}


def remembered() -> dict[str, list[Any]]:
    """What they remember: arguments and answers, by module and name."""
    return {name: _entries(each) for name, each in caches().items()}


def _entries(cache: Any) -> list[Any]:
    return [entry for held in gc.get_referents(cache) if isinstance(held, dict) for entry in held.items()]


def grown(before: Sizes, after: Sizes, bounded: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The paths at which more is kept than before, and how much.

    A container whose path ends as one in `bounded` may have so many entries, whatever is in them.
    """
    found = {}
    for path, now in after.items():
        if now > _most(path, before[path], bounded) + NAMES * path.endswith("…"):
            found[path] = before[path], now
    return found


def _most(path: str, before: int, bounded: Mapping[str, int]) -> float:
    for end, most in bounded.items():
        if path.endswith(end):
            return most
        if any(f"{end}{step}" in path for step in (".", "[", "…")):
            return math.inf
    return before


def tables() -> list[Any]:
    """All tables of ours that remember within a bound, wherever they are."""
    return [thing for thing in gc.get_objects() if isinstance(thing, Remembered)]


def forget() -> None:
    """Empty all tables and caches, so that what was kept before does not count."""
    for table in tables():
        table.clear()
    for cache in caches().values():
        cache.cache_clear()


def texts(found: Sizes, root: str = "") -> int:
    """Characters of all texts; with `root`, of those below it."""
    return sum(count for path, count in found.items() if path.startswith(root) and path.endswith("…"))
