"""Moving pods on the real cluster: planned, forbidden by a budget, then done with no more rights than the page says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protos.contract import names
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import ROOT
from tests.cluster.world import RealWorld
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import T4, V100, mem, on, phase, refused_with, seat, until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]
RIGHTS = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    {"apiGroups": ["gangshare.io"], "resources": ["reservations"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list"]},
]


@pytest_asyncio.fixture(loop_scope="module")
async def world(world: RealWorld) -> AsyncIterator[RealWorld]:
    """No ReplicaSet is left behind either, which would make pods anew."""
    yield world
    await world.delete("apps/v1", "ReplicaSet", "web")


@pytest.fixture(scope="module")
def mover(cluster: Cluster) -> Iterator[Path]:
    """The kubeconfig of somebody who may do what the page says, and nothing else."""
    rbac, meta = "rbac.authorization.k8s.io/v1", {"name": "mover", "namespace": "default"}
    role = {"apiVersion": rbac, "kind": "Role", "metadata": meta, "rules": RIGHTS}
    cluster.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}, role])
    cluster.kubectl("create", "rolebinding", "mover", "--role=mover", "--serviceaccount=default:mover")
    yield cluster.account_kubeconfig("default", "mover")
    for kind in ("rolebinding", "role", "serviceaccount"):
        cluster.kubectl("delete", kind, "mover")


def a_replica_set(count: int, units: int) -> dict[str, Any]:
    """Pods that may be moved, each on the emptiest GPU."""
    said = {names.RESTARTABLE: "true", names.PLACEMENT: "spread"}
    pod = a_pod("web", a_container(limits=mem(units)), annotations=said, labels={"app": "web"})
    template = {
        "metadata": {key: pod["metadata"][key] for key in ("labels", "annotations")},
        "spec": {**pod["spec"], "restartPolicy": "Always", "automountServiceAccountToken": False},
    }
    spec = {"replicas": count, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": spec,
    }


async def gangshare(world: RealWorld, *arguments: str) -> subprocess.CompletedProcess[str]:
    server = f"http://127.0.0.1:{world.sharing.pair.status}"
    argv = [sys.executable, "-m", "extender", *arguments, "--server", server]
    return await asyncio.to_thread(subprocess.run, argv, cwd=ROOT, capture_output=True, text=True, timeout=120)


async def web(world: RealWorld) -> list[tuple[str, str]]:
    """Node and phase of the replicas that are not going."""
    mine = [pod for pod in await world.pods() if pod["metadata"].get("labels", {}).get("app") == "web"]
    there = [pod for pod in mine if "deletionTimestamp" not in pod["metadata"]]
    return sorted((pod["spec"].get("nodeName", ""), pod["status"]["phase"]) for pod in there)


async def test_pods_are_moved_for_one_that_waits_once_their_budget_allows_it(world: RealWorld, mover: Path) -> None:
    cluster = world.cluster
    cluster.kubectl("cordon", V100)
    cluster.apply(a_replica_set(4, 6))
    budget = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1}
    meta = {"name": "web", "namespace": "default"}
    cluster.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": budget})

    async def spread() -> bool:
        return await web(world) == [(T4, "Running")] * 4

    await until(world, spread, "a replica on each T4")
    cluster.kubectl("uncordon", V100)
    await world.create_pod(a_pod("train", a_container(limits={names.WHOLE_GPU: 3}), **on(T4)))
    assert "no node with 3 whole GPUs free" in await refused_with(world, "train")

    told = await gangshare(world, "defrag", "--for", "train")
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[-1].startswith("3 moves make room for default/train: node-1 GPU ")
    ordered = ["defrag", "--for", "train", "--apply", f"--kubeconfig={mover}"]
    refused = await gangshare(world, *ordered)
    assert refused.returncode == 1
    assert "PodDisruptionBudget default/web allows 1 eviction, and the moves are 3 of its pods" in refused.stderr
    assert await web(world) == [(T4, "Running")] * 4

    cluster.kubectl("delete", "poddisruptionbudget", "web")
    done = await gangshare(world, *ordered)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("evicted default/web-") == 3
    explained = await gangshare(world, "explain", "pod", "train")
    assert "node-1 GPU" in explained.stdout or "on node-1" in explained.stdout

    async def settled() -> bool:
        moved = await web(world) == [(T4, "Running"), *[(V100, "Running")] * 3]
        return moved and await phase(world, "train") == "Running"

    await until(world, settled, "train runs, and the moved pods elsewhere", 90)
    node, gpus = await seat(world, "train")
    assert (node, len(gpus)) == (T4, 3)
