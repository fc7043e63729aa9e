"""An extender before a small cluster. A module whose cluster is another one has a fixture `api` of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from extender.cluster import watch
from extender.sim.apiserver.api import Api
from tests.unit.extender_shell.world import World, add_node, world


@pytest.fixture
def api() -> Api:
    """One node with two GPUs of 16 units."""
    made = Api()
    add_node(made, "node-a", gpus=2)
    return made


@pytest.fixture
async def cluster(api: Api) -> AsyncIterator[World]:
    """All of it, once the extender is ready."""
    async with world(api) as made:
        await made.ready()
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions that are not there are looked for again at once."""
    monkeypatch.setattr(watch, "DISCOVER_S", 0.05)
    monkeypatch.setattr(watch, "DISCOVER_AGAIN_S", 0.05)
    monkeypatch.setattr(watch, "MISSING_S", 0.3)
