"""Who may see tenants' pods, as the real API server says it to the extender's own account: base's roles, no more."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from extender.cluster.reviews import Reviews
from protos.kube import credentials
from protos.kube.client import ApiClient
from tests.cluster import builds
from tests.cluster.cluster import Cluster

SYSTEM = "gangshare-system"


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """An API server with the roles, and an account bound to each of those for people and Prometheus, and to none."""
    with Cluster.up(nodes=0, scheduler=False) as running:
        running.apply(builds.ROOT / "manifests" / "base")
        for account in ("viewer", "metrics", "nobody"):
            running.kubectl("create", "serviceaccount", account)
        for role in ("viewer", "metrics"):
            subject = f"--serviceaccount=default:{role}"
            running.kubectl("create", "clusterrolebinding", role, f"--clusterrole=gangshare-{role}", subject)
        yield running


MAY = {
    ("viewer", "/inspect"),
    ("viewer", "/inspect/node-1"),
    ("viewer", "/explain/default/p1"),
    ("viewer", "/queues"),
    ("metrics", "/metrics"),
}


@pytest.mark.core
async def test_the_extenders_account_learns_who_somebody_is_and_what_they_may(cluster: Cluster) -> None:
    access = await credentials.load(str(cluster.account_kubeconfig(SYSTEM, "gangshare-scheduler")))
    async with ApiClient(access) as client:
        reviews = Reviews(client, time.monotonic)
        paths = sorted({path for _, path in MAY})
        for account in ("viewer", "metrics", "nobody"):
            user = await reviews.user(cluster.plane.token("default", account))
            assert user is not None
            assert user.username == f"system:serviceaccount:default:{account}"
            allowed = {(account, path) for path in paths if await reviews.allowed(user, path)}
            assert allowed == {pair for pair in MAY if pair[0] == account}
        assert await reviews.user("made-up") is None
