"""The stories about queues on the embedded cluster, with the unchanged extender and plugins."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from extender.sim.kubelet.status import NodeSpec
from tests.scenarios import embedded, gang_stories, queue_stories
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.queue_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.stories import T4, V100

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    nodes = [NodeSpec(name=T4, profile="t4x4"), NodeSpec(name=V100, profile="dgx1-v100")]
    async with embedded.a_cluster(*nodes) as cluster:
        world = EmbeddedWorld(cluster)
        await world.define(*queue_stories.definitions())  # they come after the extender
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gang_stories.tidy(running)
    await queue_stories.tidy_queues(running)
