"""The stories about GpuClasses on the embedded cluster, with the unchanged extender and plugins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from extender.sim.kubelet.status import NodeSpec
from tests.scenarios import embedded
from tests.scenarios.class_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.class_stories import tidy_classes
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.stories import T4, V100, tidy

pytestmark = pytest.mark.asyncio(loop_scope="module")
DEFINITION = Path(__file__).parents[2] / "manifests/base/extender/gpuclass.yaml"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    nodes = [NodeSpec(name=T4, profile="t4x4"), NodeSpec(name=V100, profile="dgx1-v100")]
    async with embedded.a_cluster(*nodes) as cluster:
        world = EmbeddedWorld(cluster)
        await world.define(yaml.safe_load(DEFINITION.read_text()))  # it comes after the extender
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await tidy(running)
    await tidy_classes(running)
