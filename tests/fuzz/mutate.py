"""Seeded changes to JSON texts: values at the ends of their types, lengths, depth, strange characters, duplicates.

A text that is a value of another text (an annotation) is changed from within as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

NUMBERS = (
    "0", "-0", "-1", "1", "2", "255", "256", "257", "65536", "-2147483649", "2147483647", "2147483648", "4294967296",
    "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616",
    "1" + "0" * 18, "1" + "0" * 30, "9" * 400, "9" * 4300, "9" * 4301, "-" + "9" * 5000, "0.1", "-0.0", "1e3", "1e308",
    "1e400", "-1e400", "1e-400", "NaN", "Infinity", "1.0", "1e1000000",
)  # fmt: skip
WHOLE = tuple(number for number in NUMBERS if number.lstrip("-").isdecimal())
WORDS = (
    "", " ", "\x00", "\x1b[2J\x1b]0;x\x07", "\u202e", "\ufeff", "é" * 300, "𝟠", "٣", "²", "a" * 63, "a" * 254,
    "a" * 300, "a" * 3000, "A" * 70_000, "-1", "0", "1", "0x10", "1_0", "+1", "1e9", "1e400", "nan", "inf", "NaN",
    "9" * 9, "9" * 10, "9" * 19, "9" * 30, "9" * 4301, "true", "null", "*", "!", "!*", "*" * 128, "?" * 128,
    "[!" * 60, "*a" * 60, ",".join(["x*"] * 64), ",".join(["*"] * 65), ",,,", "/", "a/b", "../..", "%00",
    "1e999999999", "1e-999999999", "99999999999Ei", "-5", "-5Gi", "1n", "0.000000001n", ".5", "5.", "40Gi", "1m",
    "999999h", "1e5s", "0s", "90m", "-90m", "9" * 50 + "h", "1h" * 40, "2025-01-31T12:00:00Z", "9999-12-31T23:59:59Z",
    "0000-01-01T00:00:00Z", "2025-02-31T12:00:00Z", "2025-13-01T00:00:00Z", "2025-01-31T12:00:nanZ",
    "2100-01-01T00:00:00.999999999Z", "NV4", "NV" + "9" * 4400, "NV٣", "SYS", "8.0", "9" * 20 + ".0", "8.0.0", ".",
    "x.", "nvlink", "any", "spread", "none", "all", "restart", "ignore", "worker", "launcher", "default", "root",
    "g1", "job", "train", "team-a", "n1", "n2", "uid-p1", "uid-p2", "GPU-n1-0", "gpu-0", "default/g1", "Running",
    "Succeeded", "Failed", "True", "False", "Never", "Always", "In", "Exists", "Gt", "{", "[]", "{}", '{"v":1}',
    '{"v":2}', '{"v":0}', '{"v":' + "9" * 4000 + "}", "[" * 64, "[" * 2000, '{"a":' * 2000, "[[" * 40_000, "- " * 100,
    "a: &a [*a]", "&a [*a]", '{"worker":2147483647}', '{"worker":-1}', '["a","b"]', '{"0":{"0":1}}',
    "gangshare-extender", "\r\n", "\ud7ff",
)  # fmt: skip
COUNTS = (2, 3, 8, 33, 65, 257, 600)
"""How often something is repeated."""
LARGEST = 200_000
"""Characters that are added by repeating something: an object of the API has some million at most."""
DEPTHS = (2, 8, 65, 200, 1100)


class Mutator:
    """Changes texts as one number says."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def changed(self, text: str, others: Sequence[str] = ()) -> bytes:
        """The text with some changes; parts of the others may come in."""
        random = self.random
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self._bytes(text.encode())
        for _ in range(1 + (random.random() < 0.3) + 4 * (random.random() < 0.1)):
            value = self._edit(value, others)
        data = _text(value).encode(errors="replace")
        return self._bytes(data) if random.random() < 0.08 else data

    def text(self, text: str) -> str:
        """A text that is no JSON, changed by its characters."""
        return self._bytes(text.encode()).decode(errors="replace")

    def _bytes(self, data: bytes) -> bytes:
        random = self.random
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(data) + 1)
            to = min(len(data), at + random.choice((0, 1, 1, 4, 40)))
            match random.randrange(6):
                case 0:
                    data = data[:at]
                case 1:
                    data = data[:at] + data[to:]
                case 2:
                    data = data[:at] + random.randbytes(random.choice((1, 1, 3))) + data[to:]
                case 3:
                    data = data[:at] + data[at:to] * random.choice(COUNTS) + data[to:]
                case 4:
                    data = (
                        data[:at]
                        + random.choice((b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\x00", b'"', b"{", b"]"))
                        + data[to:]
                    )
                case _:
                    data = data[:at] + random.choice(NUMBERS).encode() + data[to:]
        return data

    def _edit(self, value: Any, others: Sequence[str]) -> Any:
        """The value with one change somewhere in it."""
        random = self.random
        holder: Any = None
        key: Any = None
        here = value
        while isinstance(here, dict | list) and here and random.random() < 0.93:
            holder = here
            key = random.choice(list(here)) if isinstance(here, dict) else random.randrange(len(here))
            here = here[key]
        if isinstance(here, str) and here[:1] in ("{", "[") and random.random() < 0.8:
            new: Any = self.changed(here, others).decode(errors="replace")
        elif random.random() < 0.6:
            new = self._alike(here)
        else:
            new = random.choice(self._ways)(self, here, others)
        if holder is None:
            return new
        if new is GONE:
            del holder[key]
        elif new is TWICE and isinstance(holder, dict):
            holder[Again(key)] = random.choice((None, "", 0, [], {}))
        elif new is MANY:
            self._multiply(holder, key)
        else:
            holder[key] = None if new in (GONE, TWICE, MANY) else new
        return value

    def _multiply(self, holder: Any, key: Any) -> None:
        count = min(self.random.choice(COUNTS), 1 + LARGEST // len(_text(holder[key])))
        if isinstance(holder, list):
            holder[key:key] = [holder[key]] * count
        else:
            holder |= {f"{key}{n}": holder[key] for n in range(count)}

    def _alike(self, here: Any) -> Any:
        """Another value of the same type."""
        if isinstance(here, int) and not isinstance(here, bool):
            return Raw(self.random.choice(WHOLE))
        if isinstance(here, str) and self.random.random() < 0.7:
            return self.random.choice(WORDS)
        return self._near(here, ())

    def _number(self, _: Any, __: Sequence[str]) -> Any:
        return Raw(self.random.choice(NUMBERS))

    def _word(self, _: Any, __: Sequence[str]) -> Any:
        return self.random.choice(WORDS)

    def _near(self, here: Any, _: Sequence[str]) -> Any:
        """Something like what is there."""
        if isinstance(here, Raw):
            return Raw(here.text * 2)
        if isinstance(here, bool) or here is None:
            return not here
        if isinstance(here, int | float):
            return self.random.choice((here + 1, here - 1, -here, here * 1000))
        if isinstance(here, str):
            return self.text(here)
        return self.random.choice(([], {}, None))

    def _deep(self, here: Any, _: Sequence[str]) -> Any:
        depth, form = self.random.choice(DEPTHS), self.random.choice((("[", "]"), ('{"a":', "}")))
        return Raw(f"{form[0] * depth}{_text(here)}{form[1] * depth}")

    def _other(self, _: Any, others: Sequence[str]) -> Any:
        """A part of another text."""
        if not others:
            return None
        here: Any = json.loads(self.random.choice(others))
        while isinstance(here, dict | list) and here and self.random.random() < 0.7:
            here = self.random.choice(list(here.values()) if isinstance(here, dict) else here)
        return here

    _ways: Sequence[Callable[[Mutator, Any, Sequence[str]], Any]]


GONE, TWICE, MANY = ("gone",), ("twice",), ("many",)
"""What is to be done instead of a value."""
Mutator._ways = (
    Mutator._number,
    Mutator._number,
    Mutator._word,
    Mutator._word,
    Mutator._near,
    Mutator._near,
    Mutator._deep,
    Mutator._other,
    lambda *_: GONE,
    lambda *_: TWICE,
    lambda *_: MANY,
    lambda *_: None,
)


class Raw(NamedTuple):
    """What stands in the text as it is."""

    text: str


class Again(str):
    """A key that may be there more than once."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def _text(value: Any) -> str:
    """The JSON, with what is to stand there as it is."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
