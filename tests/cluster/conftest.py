"""The session's cluster, and one clear line where this machine cannot have one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.cluster import assets
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare
from tests.cluster.process import wait_for
from tests.cluster.world import MACHINES, RealWorld, offered
from tests.scenarios import gang_stories

_HERE = Path(__file__).parent
_SECONDS = 300  # for one test, its share of the cluster's start included
_missing = pytest.StashKey[assets.MissingAsset]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "core: of the real-cluster tests, those run on every Kubernetes version")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in filter(_ours, items):
        item.add_marker(pytest.mark.cluster)
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SECONDS))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what is missing before the first test: it takes minutes, once, and no test's time limit should pay."""
    if session.config.option.collectonly or not any(map(_ours, session.items)):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    try:
        assets.provide(say=reporter.write_line if reporter else print)
    except assets.MissingAsset as missing:
        session.config.stash[_missing] = missing


def _ours(item: pytest.Item) -> bool:
    return _HERE in item.path.parents


@pytest.fixture(scope="session", autouse=True)
def able_machine(pytestconfig: pytest.Config) -> None:
    """Skips every test of this folder, saying what is missing; on a CI machine that is a failure."""
    if missing := pytestconfig.stash.get(_missing, None):
        if assets.in_ci():
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """Two ready nodes and the stock scheduler, shared by the session: leave no pod behind."""
    with Cluster.up(nodes=2) as running:
        yield running


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    """Gangshare for the tests of one module, as it is without any option."""
    running = Gangshare(cluster, MACHINES).start()
    yield running
    running.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def world(sharing: Gangshare) -> AsyncIterator[RealWorld]:
    """That for one test, which finds no Events of others, and leaves no pod, Job, budget nor PodGroup behind."""
    found = RealWorld(sharing)
    await found.forget_events("default", gang_stories.OTHER)
    yield found
    await gang_stories.tidy(found)
    wait_for(lambda: offered(sharing), 30, "GPUs on every node")
