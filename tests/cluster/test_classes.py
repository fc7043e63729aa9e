"""The stories about GpuClasses on the real cluster, with the definition and the rights of the manifests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster.api import ApiError
from tests.cluster.process import wait_for
from tests.cluster.world import RealWorld
from tests.scenarios.class_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.class_stories import a_class, tidy_classes

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]
CLASSES = "/apis/gangshare.io/v1alpha1/gpuclasses"


@pytest_asyncio.fixture(loop_scope="module")
async def world(world: RealWorld) -> AsyncIterator[RealWorld]:
    """No class is left behind either."""
    yield world
    await tidy_classes(world)


async def test_nonsense_is_refused_where_it_is_written_or_told_on_the_class(world: RealWorld) -> None:
    for spec in ({"link": "fast"}, {"minMemory": "much"}, {"models": ["!"]}, {"minComputeCapability": "new"}):
        with pytest.raises(ApiError):
            world.cluster.api.post(CLASSES, a_class("odd", **spec))
    world.cluster.api.post(CLASSES, a_class("odd", minMemory="80Gi", maxMemory="40Gi"))

    def told() -> bool:
        status = world.cluster.api.get(f"{CLASSES}/odd").get("status", {})
        return [c["status"] for c in status.get("conditions", [])] == ["False"]

    wait_for(told, 30, "the class says that it cannot be read")
    assert "maxMemory is '40Gi'" in world.cluster.kubectl("get", "gpuclass", "odd", "-o", "wide")
