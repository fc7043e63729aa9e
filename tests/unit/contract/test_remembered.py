"""What is remembered stays within its bounds, and what is in use stays remembered."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.contract.remembered import Remembered
from protos.contract.selection import compiled, matches


def test_no_more_entries_are_kept_than_said() -> None:
    known: Remembered[int, int] = Remembered(10)
    for number in range(1000):
        known.put(number, number)
        assert len(known) <= 10
    assert known.get(999) == 999
    assert known.get(0) is None


def test_a_lower_limit_is_kept_as_others_come() -> None:
    known: Remembered[int, int] = Remembered(1000)
    for number in range(1000):
        known.put(number, number)
    known.limit(10)
    for number in range(1000, 1020):
        known.put(number, number)
    assert len(known) <= 10


def test_what_is_in_use_stays() -> None:
    known: Remembered[str, int] = Remembered(10)
    known.put("used", 1)
    for number in range(1000):
        known.put(f"{number}", number)
        assert known.get("used") == 1


def test_no_more_weight_is_kept_than_said() -> None:
    known: Remembered[str, int] = Remembered(1000, 100, len)
    for number in range(1000):
        known.put("x" * 9 + f"{number:03}", number)
        assert len(known) * 12 <= 100


def test_what_is_too_heavy_alone_is_answered_and_not_kept() -> None:
    known: Remembered[str, int] = Remembered(1000, 100, len)
    assert known.put("x" * 51, 1) == 1
    assert known.get("x" * 51) is None
    assert len(known) == 0


GLOB = st.text("aB1-*?[]!", min_size=1, max_size=8)


@given(st.lists(GLOB, max_size=5), st.text("aB1-[", max_size=6))
def test_globs_match_as_those_of_fnmatch(patterns: list[str], value: str) -> None:
    wanted = [glob for glob in patterns if not glob.startswith("!")]
    unwanted = [glob[1:] for glob in patterns if glob.startswith("!")]

    def any_of(globs: list[str]) -> bool:
        return any(fnmatchcase(value.lower(), glob.lower()) for glob in globs)

    expected = not any_of(unwanted) and (not wanted or any_of(wanted))
    assert matches(patterns, value) == expected
    assert compiled(tuple(patterns)).lets(value) == expected


@given(st.lists(GLOB, max_size=5), st.text("aB1-[", max_size=6))
def test_inside_a_value_a_plain_name_matches_and_a_glob_does_not(patterns: list[str], value: str) -> None:
    def accepts(glob: str) -> bool:
        plain = not set("*?[") & set(glob)
        return glob.lower() in value.lower() if plain else fnmatchcase(value.lower(), glob.lower())

    wanted = [glob for glob in patterns if not glob.startswith("!")]
    unwanted = any(accepts(glob[1:]) for glob in patterns if glob.startswith("!"))
    assert matches(patterns, value, inside=True) == (not unwanted and (not wanted or any(map(accepts, wanted))))


def test_the_same_globs_are_kept_apart_for_models_and_uuids() -> None:
    for _ in range(2):
        assert not matches(["A100"], "NVIDIA A100-SXM4-80GB")
        assert matches(["A100"], "NVIDIA A100-SXM4-80GB", inside=True)


@pytest.mark.parametrize(
    "globs", [("GPU-a",), ("gpu-B",), ("GPU-*",), ("!GPU-a",), ("x", "GPU-*"), ("x",), ("x", "!GPU-a")]
)
def test_a_glance_at_many_values_never_misses_one_that_is_let_through(globs: tuple[str, ...]) -> None:
    ready, values = compiled(globs), ("GPU-a", "GPU-b")
    assert ready.may_let(frozenset(value.lower() for value in values)) or not ready.among(values)
    assert ready.may_let(frozenset(["gpu-c"])) or not ready.among(["GPU-c"])


def test_names_that_are_not_there_are_told_at_a_glance() -> None:
    assert not compiled(("GPU-x",)).may_let(frozenset(["gpu-a", "gpu-b"]))
