"""Pods share GPUs on the stock scheduler and kubelet: each is given exactly what its annotation names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, a_gpu_pod


@pytest.fixture(scope="module")
def sharing(cluster: Cluster) -> Iterator[Gangshare]:
    running = Gangshare(cluster, {"node-1": "t4x4", "node-2": "mixed"}).start()
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.delete_pods()


@pytest.mark.core
def test_fractional_pods_pack_on_one_gpu_until_it_is_full_then_the_next(sharing: Gangshare) -> None:
    gpus = []
    for i in range(4):
        pod = sharing.run(a_gpu_pod(f"frac-{i}", mem=6))
        gpus += sharing.annotated(pod)["main"]
        assert sharing.visible(f"frac-{i}") == sharing.annotated(pod)["main"]
    assert gpus[0] == gpus[1] != gpus[2] == gpus[3]
