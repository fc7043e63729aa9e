"""Label selectors and their requirements. Source: meta/v1 LabelSelector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
KEY: Final = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""A valid key of a label or taint."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


class Requirement(msgspec.Struct, frozen=True):
    """One NodeSelectorRequirement on a label (or the name) of an object."""

    key: str
    operator: str
    """One of OPERATORS."""
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise ValueError(f"operator is {self.operator[:60]!r}: expected one of {', '.join(OPERATORS)}")

    def met(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        here, bound = _integer(value), _integer(self.values[0] if len(self.values) == 1 else None)
        if here is None or bound is None:
            return False
        return here > bound if self.operator == "Gt" else here < bound


class Selector(msgspec.Struct, frozen=True, rename="camel"):
    """A LabelSelector; an empty one selects all objects."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        exact = all(labels.get(key) == value for key, value in self.match_labels.items())
        return exact and all(requirement.met(labels) for requirement in self.match_expressions)


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and _INTEGER.fullmatch(text) else None
