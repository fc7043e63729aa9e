"""The stories about gated gangs on the real cluster, with the admission policy or the webhook that its version has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.cluster import assets
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare
from tests.cluster.process import wait_for
from tests.cluster.world import RealWorld, offered
from tests.scenarios import gang_stories
from tests.scenarios.gated_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.stories import T4, V100

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]
BETA = ["--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config=admissionregistration.k8s.io/v1beta1=true"]


@pytest.fixture(scope="module")
def sharing(able_machine: None) -> Iterator[Gangshare]:
    minor = assets.provide().minor
    component = "gate-policy" if minor >= 36 else "gate-policy-v1beta1"
    with Cluster.up(nodes=2, apiserver_args=[] if minor >= 36 else BETA) as cluster:
        yield Gangshare(cluster, {T4: "t4x4", V100: "dgx1-v100"}, components=[component]).start()


@pytest_asyncio.fixture(loop_scope="module")
async def world(sharing: Gangshare) -> AsyncIterator[RealWorld]:
    found = RealWorld(sharing)
    yield found
    await gang_stories.tidy(found)
    wait_for(lambda: offered(sharing), 30, "GPUs on every node")
