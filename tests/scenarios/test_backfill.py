"""The story about backfill on the embedded cluster, with the unchanged extender and plugins."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from extender.sim.kubelet.status import NodeSpec
from tests.scenarios import embedded, gangs
from tests.scenarios.backfill_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.backfill_stories import ARGS
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.stories import T4

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def world() -> AsyncIterator[EmbeddedWorld]:
    async with embedded.a_cluster(NodeSpec(name=T4, profile="t4x4"), extender_args=ARGS) as cluster:
        found = EmbeddedWorld(cluster)
        yield found
        await gangs.tidy(found)
