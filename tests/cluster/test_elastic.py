"""The stories about elastic jobs on the real cluster, with a stand-in for ET-operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare
from tests.scenarios.elastic_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.elastic_stories import ARGS, CLASSES, DEFINITIONS
from tests.scenarios.stories import T4, V100

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    cluster.apply([*CLASSES, *DEFINITIONS])
    running = Gangshare(cluster, {T4: "t4x4", V100: "t4x4"}, extender_args=ARGS).start()
    yield running
    running.stop()
    cluster.kubectl("delete", "priorityclasses", *(each["metadata"]["name"] for each in CLASSES))
    cluster.kubectl("delete", "customresourcedefinitions", *(each["metadata"]["name"] for each in DEFINITIONS))
