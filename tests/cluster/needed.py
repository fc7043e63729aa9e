"""What happens to tests on a machine that lacks a part of the real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster import assets


@contextmanager
def or_skip() -> Iterator[None]:
    """If a part is missing the test is skipped; in CI it fails."""
    try:
        yield
    except assets.MissingAsset as missing:
        if assets.in_ci():
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
