"""Conversion between timestamps of the API (RFC 3339, UTC) and seconds since 1970."""

import math
import re

_TIMESTAMP = re.compile(
    r"([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-4]):([0-5][0-9]):([0-6][0-9](?:\.[0-9]{1,18})?)Z"
)
DAYS_OF_400_YEARS = 146_097
LAST_SECOND = 253_402_300_799
"""The last second of the year 9999, since 1970: RFC 3339 has four digits for a year."""


def epoch_seconds(timestamp: str) -> float:
    """Seconds since 1970 of a timestamp like `2025-01-31T12:00:00Z`, also with decimals; raises ValueError."""
    form = _TIMESTAMP.fullmatch(timestamp)
    if form is None:
        raise ValueError(f"{timestamp[:40]!r} is no timestamp: expected one like 2025-01-31T12:00:00Z")
    year, month, day, hour, minute = map(int, form.groups()[:5])
    return float(_days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60) + float(form[6])


def _days_since_1970(year: int, month: int, day: int) -> int:
    """Years count from March, so that the leap day is the last day."""
    if month <= 2:
        year, month = year - 1, month + 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719469


def timestamp(seconds: float) -> str:
    """The timestamp, rounded up to a second; at most the end of the year 9999."""
    whole = math.ceil(min(seconds, LAST_SECOND))
    year, month, day = _date(whole // 86400)
    hour, minute, second = whole % 86400 // 3600, whole % 3600 // 60, whole % 60
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"


def _date(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day since 1970."""
    year = 1970 + days * 400 // DAYS_OF_400_YEARS  # or the next one, near a New Year
    year += (_days_since_1970(year + 1, 1, 1) <= days) - (_days_since_1970(year, 1, 1) > days)
    month = next(month for month in range(12, 0, -1) if _days_since_1970(year, month, 1) <= days)
    return year, month, days - _days_since_1970(year, month, 1) + 1
