"""The stories on the real cluster: kube-apiserver, kube-scheduler, kubelets, containerd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare
from tests.cluster.world import MACHINES
from tests.scenarios.stories import *  # noqa: F403  # the stories are the tests of this module

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    running = Gangshare(cluster, MACHINES, plugin_args=["--cool-down=1"]).start()
    yield running
    running.stop()
