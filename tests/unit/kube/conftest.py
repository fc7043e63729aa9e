"""The scripted API server of a test."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.kube import apiserver


@pytest.fixture
async def script() -> AsyncIterator[apiserver.Script]:
    async with apiserver.serving() as served:
        yield served
