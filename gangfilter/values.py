"""Reads the values of annotations and labels; what cannot be read becomes a sentence that says what was expected.

Each parser takes a text and raises BadValue. A Reader looks up keys and collects the sentences. No text raises anything
else, and none takes long: the length of texts is limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

import msgspec
import yaml

from gangfilter.group import LAXEST_FIRST, OnLost
from protos.contract.bounds import DURATION, JSON_TEXT, MEMBERS, NAME, ROLES, TIME, YAML_BRACKETS, YAML_TEXT
from protos.contract.codec import BAD_JSON

LONGEST_SHOWN = 60

T = TypeVar("T")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class BadValue(ValueError):
    """A value that cannot be read; the message says what was expected."""


class Key(NamedTuple):
    """The annotation or label that holds a value."""

    place: Literal["annotation", "label"]
    name: str

    def __str__(self) -> str:
        return f"{self.place} {self.name}"


def annotation(name: str) -> Key:
    """The annotation of this name."""
    return Key("annotation", name)


def label(name: str) -> Key:
    """The label of this name."""
    return Key("label", name)


def both(name: str) -> tuple[Key, Key]:
    """The annotation of this name, else the label."""
    return annotation(name), label(name)


class Reader:
    """Reads the annotations and labels of one object; an unreadable value counts as not set and becomes a problem."""

    def __init__(self, annotations: Mapping[str, str], labels: Mapping[str, str]) -> None:
        self._texts = {"annotation": annotations, "label": labels}
        self.problems: list[str] = []

    def blank(self, key: Key) -> bool:
        """Whether the key is there without a value."""
        return key.name in self._texts[key.place] and not self.text(key)

    def text(self, key: Key) -> str:
        return self._texts[key.place].get(key.name, "").strip()

    def read(self, parse: Callable[[str], T], *keys: Key) -> T | None:
        """The value of the first of these keys that is not empty, None if there is none or it cannot be read."""
        for key in keys:
            if (text := self._texts[key.place].get(key.name)) and (text := text.strip()):
                for other in keys:
                    if other.name == key.name and self.text(other) not in ("", text):
                        self.problems.append(
                            f"{key} is {shown(text)}, {other} {shown(self.text(other))}: the first holds"
                        )
                try:
                    return parse(text)
                except BadValue as error:
                    self.problems.append(f"{key} is {shown(text)}: expected {error}")
                    return None
        return None


def shown(value: object) -> str:
    """A value for a sentence, cut to a readable length."""
    text = repr(value[: LONGEST_SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def name(text: str) -> str:
    """The name of a group or queue."""
    if len(text) > NAME.most or not text.isprintable() or " " in text:
        raise BadValue(f"a name of at most {NAME.most} characters without spaces")
    return text


def role(text: str) -> str:
    """A role, in lower case: Kubeflow writes `Worker` and `worker`."""
    return name(text).lower()


def count(text: str) -> int:
    """A number of members."""
    if not _is_whole(text) or not 1 <= int(text) <= MEMBERS.most:
        raise BadValue(f"a whole number from 1 to {MEMBERS.most}")
    return int(text)


def seconds(text: str) -> float | None:
    """A time limit in seconds; 0 is no limit."""
    if not _is_whole(text):
        raise BadValue("a whole number of seconds")
    return _limited(float(text))


def duration(text: str) -> float | None:
    """A duration as Go writes it (`10m`, `1h30m`), in seconds; 0 is no limit."""
    parts = _DURATION.findall(text) if len(text) <= DURATION.most else []
    if text != "0" and (not parts or "".join(number + unit for number, unit in parts) != text):
        raise BadValue("a duration like 600s, 10m or 1h30m")
    return _limited(sum(float(number) * _SECONDS[unit] for number, unit in parts))


def _limited(time_s: float) -> float | None:
    if time_s > TIME.most:
        raise BadValue(f"at most {TIME.most} seconds")
    return time_s or None


def run_time(text: str) -> float:
    """A run time: in seconds, or as Go writes it."""
    try:
        time_s = seconds(text) if _is_whole(text) else duration(text)
    except BadValue:
        time_s = None
    if time_s is None:
        raise BadValue("seconds above 0, like 5400, or a duration like 90m or 2h30m")
    return time_s


def flag(text: str) -> bool:
    """Yes or no."""
    if text not in ("true", "false"):
        raise BadValue("true or false")
    return text == "true"


def lost(text: str) -> OnLost:
    """The answer to a member that is lost after the start."""
    for answer in LAXEST_FIRST:
        if text == answer:
            return answer
    raise BadValue("wait, restart or ignore")


def roles(text: str) -> tuple[tuple[str, int], ...]:
    """A minimum per role, as JSON."""
    expected = 'members by role, like {"launcher": 1, "worker": 2}'
    minimums = decoded(text, _INTEGERS, expected)
    return by_role(minimums, expected)


def lone_group(text: str) -> None:
    """A JSON list of groups that start together; more than one is refused."""
    if len(decoded(text, _NAMES, 'names, like ["default/a"]')) > 1:
        raise BadValue("at most one group: each starts by itself")


def by_role(minimums: Mapping[str, int], expected: str = "members by role") -> tuple[tuple[str, int], ...]:
    """A minimum per role, sorted, without the roles that need no member; raises BadValue."""
    if len(minimums) > ROLES.most:
        raise BadValue(f"{expected}, of at most {ROLES.most} roles")
    merged: dict[str, int] = {}
    for name, number in minimums.items():
        if not 0 <= number <= MEMBERS.most:
            raise BadValue(f"{expected}, each from 0 to {MEMBERS.most}; {shown(name)} has {shown(number)}")
        merged[role(name)] = max(number, merged.get(role(name), 0))
    return tuple(sorted((name, number) for name, number in merged.items() if number))


class _Members(msgspec.Struct, rename="camel"):
    pod_number: str


class _AffinityGroup(msgspec.Struct):
    name: str
    members: list[_Members]


class _Spec(msgspec.Struct, rename="camel"):
    affinity_group: _AffinityGroup | str = ""
    virtual_cluster: str = ""


class _TaskGroup(msgspec.Struct, rename="camel"):
    name: str
    min_member: int


class HivedGroup(msgspec.Struct, frozen=True):
    """An affinity group; the name is empty for a pod without one."""

    name: str
    pods: int
    virtual_cluster: str


@lru_cache(maxsize=256)
def hived(text: str) -> HivedGroup:
    """HiveD's spec, which is on every pod of an affinity group; raises BadValue."""
    if len(text) > YAML_TEXT.most or text.count("[") + text.count("{") > YAML_BRACKETS.most:
        raise BadValue(f"{_HIVED}, of at most {YAML_TEXT.most} characters and {YAML_BRACKETS.most} brackets")
    try:
        spec = msgspec.convert(yaml.load(text, Loader=yaml.CBaseLoader), _Spec)
        if isinstance(spec.affinity_group, str):
            if spec.affinity_group in ("", "~", "null"):
                return HivedGroup("", 1, spec.virtual_cluster)
            raise BadValue(_HIVED)
        pods = sum(count(members.pod_number) for members in spec.affinity_group.members)
        return HivedGroup(name(spec.affinity_group.name), count(str(pods)), spec.virtual_cluster)
    except (yaml.YAMLError, *BAD_JSON) as error:
        raise BadValue(_HIVED) from error


def task_groups(text: str) -> tuple[tuple[str, int], ...]:
    """YuniKorn's task groups as minimum per role; raises BadValue."""
    minimums: dict[str, int] = {}
    for group in decoded(text, _TASK_GROUP_LIST, _TASK_GROUPS):
        minimums[group.name] = max(group.min_member, minimums.get(group.name, 0))
    return by_role(minimums, _TASK_GROUPS)


_HIVED = "a PodSchedulingSpec of HiveD with affinityGroup.name and affinityGroup.members[].podNumber"
_TASK_GROUPS = 'task groups, like [{"name": "worker", "minMember": 2}]'
_NAMES = msgspec.json.Decoder(list[str])
_INTEGERS = msgspec.json.Decoder(dict[str, int])
_TASK_GROUP_LIST = msgspec.json.Decoder(list[_TaskGroup])


def decoded(text: str, decoder: msgspec.json.Decoder[T], expected: str) -> T:
    """The decoded JSON text; raises BadValue."""
    try:
        if len(text) <= JSON_TEXT.most:
            return decoder.decode(text)
    except BAD_JSON as error:
        raise BadValue(expected) from error
    raise BadValue(f"{expected}, of at most {JSON_TEXT.most} characters")


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10
