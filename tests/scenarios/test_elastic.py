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
from tests.scenarios.stories import T4

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    async with embedded.a_cluster(NodeSpec(name=T4, profile="t4x4"), extender_args=ARGS) as cluster:
        world = EmbeddedWorld(cluster)
        for each in (*CLASSES, *DEFINITIONS):  # these definitions come after the extender
            await world.create(each)

        async def established() -> bool:
            found = await world.items("apiextensions.k8s.io/v1", "CustomResourceDefinition")
            return len(found) >= len(DEFINITIONS) and all(one.get("status") for one in found)

        await world.wait(established, 10, "the operator's kinds are served")
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running)
