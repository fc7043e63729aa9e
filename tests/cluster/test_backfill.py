"""The story about backfill on the real cluster: kube-apiserver, kube-scheduler, kubelets, containerd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare
from tests.scenarios.backfill_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.backfill_stories import ARGS
from tests.scenarios.stories import T4

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    running = Gangshare(cluster, {T4: "t4x4"}, extender_args=ARGS).start()
    yield running
    running.stop()
