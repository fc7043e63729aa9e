"""Kubernetes quantities (`10Gi`, `500m`, `1e3`, 7) as exact integers.

The grammar is that of k8s.io/apimachinery `resource.Quantity`: a decimal number, then a binary suffix (Ki … Ei), a
decimal one (n, u, m, k, M … E) or an exponent. As there, fractions are rounded away from zero, and values are capped
at 2^63 - 1.
"""

import re
from functools import lru_cache

from protos.contract.bounds import QUANTITY

LARGEST = 2**63 - 1
EXPONENTS = 100
"""With a larger exponent a number of QUANTITY characters is surely capped, or surely rounds to one."""

_FORM = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]+)?")
_UNIT = re.compile(r"([0-9]{1,7})?\s*(MiB|GiB)?", re.IGNORECASE)
_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class QuantityError(ValueError):
    """A text is no quantity, or not of the wanted kind."""


def units(quantity: str | int) -> int:
    """The quantity in whole units (bytes, devices), rounded away from zero; raises QuantityError."""
    return _rounded(*_exact(quantity))


def milli(quantity: str | int) -> int:
    """The quantity in thousandths (milli-CPUs), rounded away from zero; raises QuantityError."""
    above, below = _exact(quantity)
    return _rounded(above * 1000, below)


def integer(quantity: str | int) -> int:
    """The whole quantity of an extended resource; raises QuantityError, also for a fraction."""
    above, below = _exact(quantity)
    if above % below:
        raise QuantityError(f"{quantity!r} is no whole number")
    return above // below


def integer_or_zero(quantity: str | int) -> int:
    """The whole quantity of an extended resource; 0 for what is none."""
    try:
        return integer(quantity)
    except QuantityError:
        return 0


def mebibytes(quantity: str | int) -> int:
    """The quantity of bytes in MiB, rounded away from zero; raises QuantityError."""
    above, below = _exact(quantity)
    return _rounded(above, below * 2**20)


def memory_unit(text: str) -> int:
    """MiB in a memory unit: GiB, MiB, a multiple of them (`256MiB`) or a number of MiB; raises QuantityError."""
    form = _UNIT.fullmatch(text.strip())
    count, name = form.groups() if form else (None, None)
    mib = int(count or 1) * (1024 if (name or "").lower() == "gib" else 1)
    if not (count or name) or not mib:
        raise QuantityError(
            f"{text[: QUANTITY.most]!r} is no memory unit: expected GiB, MiB, a multiple like 256MiB or a number of MiB"
        )
    return mib


def amount_of_memory(units: int, unit_mib: int) -> str:
    """Units of GPU memory for people: `10 GiB`, `3000 MiB`, `40 units of 256 MiB`."""
    return f"{units} {unit_of_memory(unit_mib)}"


def unit_of_memory(unit_mib: int) -> str:
    """The unit of GPU memory for people: `GiB`, `MiB`, `units of 256 MiB`."""
    return {1: "MiB", 1024: "GiB"}.get(unit_mib, f"units of {unit_mib} MiB")


def _rounded(above: int, below: int) -> int:
    return -(-above // below) if above > 0 else above // below


def _exact(quantity: str | int) -> tuple[int, int]:
    """The value as a fraction with a positive denominator, capped as Kubernetes caps it; raises QuantityError."""
    return (max(-LARGEST, min(LARGEST, quantity)), 1) if isinstance(quantity, int) else _fraction(quantity)


@lru_cache(maxsize=4096)
def _fraction(text: str) -> tuple[int, int]:
    form = _FORM.fullmatch(text) if len(text) <= QUANTITY.most else None
    if form is None:
        raise QuantityError(
            f"{text[: QUANTITY.most]!r} is no quantity: expected a number with a suffix, like 10Gi, 500m or 1e3"
        )
    sign, number, suffix = form[1], form[2], form[3] or ""
    whole, _, decimals = number.partition(".")
    above, below = int(whole + decimals), 10 ** len(decimals)
    if suffix in _BINARY:
        above <<= _BINARY[suffix]
    else:
        power = _POWERS[suffix] if suffix in _POWERS else max(-EXPONENTS, min(EXPONENTS, int(suffix[1:])))
        above, below = (above * 10**power, below) if power >= 0 else (above, below * 10**-power)
    if above > LARGEST * below:
        above, below = LARGEST, 1
    return (-above if sign == "-" else above), below
