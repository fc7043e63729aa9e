"""Kubernetes quantities become exact integers."""

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.contract import quantity
from protos.contract.quantity import QuantityError

POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
SCALES = {suffix: Fraction(10) ** power for suffix, power in POWERS.items()}
SCALES |= {suffix: Fraction(1024) ** power for suffix, power in BINARY.items()}
SCALES |= {f"{letter}{power}": Fraction(10) ** int(power) for letter in "eE" for power in ("3", "+2", "-4", "0", "-99")}


def away_from_zero(value: Fraction) -> int:
    return -(-value.numerator // value.denominator) if value > 0 else value.numerator // value.denominator


@pytest.mark.parametrize(
    ("text", "units", "milli"),
    [
        ("10Gi", 10 * 2**30, 10 * 2**30 * 1000),
        ("500m", 1, 500),
        ("1e3", 1000, 1_000_000),
        ("1E3", 1000, 1_000_000),
        ("1E", 10**18, 10**21),
        ("0.5", 1, 500),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("1.5Ki", 1536, 1_536_000),
        ("100n", 1, 1),
        ("-1500m", -2, -1500),
        ("+3", 3, 3000),
        ("0", 0, 0),
        ("99Ei", quantity.LARGEST, quantity.LARGEST * 1000),
        ("1e999999999", quantity.LARGEST, quantity.LARGEST * 1000),
        ("1e-999999999", 1, 1),
        ("0e999999999", 0, 0),
        (7, 7, 7000),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str | int, units: int, milli: int) -> None:
    assert quantity.units(text) == units
    assert quantity.milli(text) == milli


@pytest.mark.parametrize(
    "text", ["", "Gi", "1gi", "1 Gi", " 1", "1_0", "0x1", "1e", "1e1.5", ".", "--1", "1KiB", "٣", "1\n"]
)
def test_what_is_no_quantity_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(QuantityError, match="is no quantity: expected"):
        quantity.units(text)


def test_an_endless_text_is_refused_and_not_repeated() -> None:
    with pytest.raises(QuantityError) as caught:
        quantity.units("9" * 10_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("text", "value"), [("2", 2), ("2k", 2000), ("2000m", 2), (3, 3), ("1.0", 1)])
def test_an_integer_may_be_written_in_any_form(text: str | int, value: int) -> None:
    assert quantity.integer(text) == value


@pytest.mark.parametrize("text", ["1500m", "0.5", "1n"])
def test_a_fraction_is_no_integer(text: str) -> None:
    with pytest.raises(QuantityError, match="no whole number"):
        quantity.integer(text)


@pytest.mark.parametrize(
    ("text", "mib"), [("40Gi", 40960), ("1", 1), ("1Mi", 1), ("1048577", 2), (2**21, 2), ("1G", 954)]
)
def test_bytes_are_counted_in_mebibytes(text: str | int, mib: int) -> None:
    assert quantity.mebibytes(text) == mib


@given(
    sign=st.sampled_from(["", "+", "-"]),
    whole=st.integers(0, 10**20),
    decimals=st.text("0123456789", max_size=12),
    suffix=st.sampled_from(sorted(SCALES)),
)
def test_every_form_agrees_with_fractions(sign: str, whole: int, decimals: str, suffix: str) -> None:
    number = Fraction(f"{whole}.{decimals or 0}") * SCALES[suffix]
    number = min(number, Fraction(quantity.LARGEST)) * (-1 if sign == "-" else 1)
    text = f"{sign}{whole}.{decimals}{suffix}"
    assert quantity.units(text) == away_from_zero(number)
    assert quantity.milli(text) == away_from_zero(number * 1000)
    assert quantity.mebibytes(text) == away_from_zero(number / 2**20)


@given(st.text(max_size=12))
def test_no_text_makes_more_trouble_than_a_quantity_error(text: str) -> None:
    with contextlib.suppress(QuantityError):
        assert isinstance(quantity.units(text), int)


@pytest.mark.parametrize(
    ("text", "mib"),
    [("GiB", 1024), ("MiB", 1), ("256MiB", 256), ("2 gib", 2048), ("512", 512), (" gib ", 1024)],
)
def test_a_memory_unit_is_in_mib(text: str, mib: int) -> None:
    assert quantity.memory_unit(text) == mib


@pytest.mark.parametrize("text", ["", "0", "0GiB", "GB", "-1", "1.5GiB", "much"])
def test_what_is_no_memory_unit_is_named(text: str) -> None:
    with pytest.raises(QuantityError, match=r"is no memory unit: expected GiB, MiB, a multiple") as refused:
        quantity.memory_unit(text)
    assert repr(text) in str(refused.value)
