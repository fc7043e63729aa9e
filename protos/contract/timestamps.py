"""Conversion between timestamps of the API (RFC 3339, UTC) and seconds since 1970."""

import math
import re
from datetime import UTC, datetime

_TIMESTAMP = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,18})?Z"
)
LAST_SECOND = 253_402_300_799
"""The last second of the year 9999, since 1970: RFC 3339 has four digits for a year."""


def epoch_seconds(timestamp: str) -> float:
    """Seconds since 1970 of a timestamp like `2025-01-31T12:00:00Z`, also with decimals; raises ValueError."""
    if _TIMESTAMP.fullmatch(timestamp) is None:
        raise ValueError(f"{timestamp[:40]!r} is no timestamp: expected one like 2025-01-31T12:00:00Z")
    return datetime.fromisoformat(timestamp).timestamp()


def timestamp(seconds: float) -> str:
    """The timestamp, rounded up to a second; at most the end of the year 9999."""
    return datetime.fromtimestamp(math.ceil(min(seconds, LAST_SECOND)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
