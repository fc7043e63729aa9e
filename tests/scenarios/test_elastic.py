"""The stories about elastic jobs on the embedded cluster, with the unchanged extender and plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from extender.sim.kubelet.status import NodeSpec
from tests.scenarios import embedded, gangs
from tests.scenarios.elastic_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.elastic_stories import ARGS, CLASSES, DEFINITIONS
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.stories import T4, V100

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    nodes = [NodeSpec(name=name, profile="t4x4") for name in (T4, V100)]
    async with embedded.a_cluster(*nodes, extender_args=ARGS) as cluster:
        world = EmbeddedWorld(cluster)
        for each in CLASSES:
            await world.create(each)
        await world.define(*DEFINITIONS)  # they come after the extender
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running)
