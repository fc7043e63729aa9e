"""The tasks of the handbook, on a cluster of 80 GPUs: what the page tells to type has the effect that it tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from extender.sim.kubelet.status import NodeSpec
from protos.contract import names
from tests.scenarios import embedded, gangs
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import mem, until
from tests.scenarios.typist import Typist
from tests.scenarios.world import Object
from tests.unit.docs import crds

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGE = "docs/howtos.md"
NODES = [f"gpu-{number}" for number in range(10)]
TENANTS = ("team-a", "team-b")
ARGS = ["--scheduler-names=gangshare", "--min-runtime=1"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    nodes = [NodeSpec(name=name, profile="dgx-a100-80g") for name in NODES]
    async with embedded.a_cluster(*nodes, extender_args=ARGS, job_backoff_seconds=0.5) as cluster:
        world = EmbeddedWorld(cluster)
        await world.define(*crds.definitions())
        for name in TENANTS:
            await world.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await world.wait(world.knows_all_gpus, 60, "the extender knows all GPUs")
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running, ("default", *TENANTS))


@pytest.fixture
def typist(world: EmbeddedWorld, tmp_path: Path) -> Typist:
    return Typist.at(world.cluster, tmp_path)


def a_job(name: str, count: int, template: Object, namespace: str = "default") -> Object:
    spec = {"parallelism": count, "completions": count, "template": template}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def nodes_full(namespace: str, count: int) -> Object:
    """A Job that takes so many nodes."""
    return a_job("full", count, a_pod("any", a_container(limits={names.WHOLE_GPU: 8})), namespace)


async def bound(world: EmbeddedWorld) -> Counter[str]:
    """How many pods of each namespace have a node, those that end left out."""
    left = [pod for pod in await world.pods() if "deletionTimestamp" not in pod["metadata"]]
    return Counter(pod["metadata"]["namespace"] for pod in left if pod["spec"].get("nodeName"))


async def shared_as(world: EmbeddedWorld, what: str, **expected: int) -> None:
    wanted = Counter({name.replace("_", "-"): count for name, count in expected.items()})

    async def so() -> bool:
        return await bound(world) == wanted

    await until(world, so, what)


async def test_team_a_gets_its_half_back_and_no_more(typist: Typist, world: EmbeddedWorld) -> None:
    await typist.follow(PAGE, "Give team A half of the GPUs", "is created", "is created", "team-b")
    await world.create(nodes_full("team-b", 10))
    await shared_as(world, "team B borrows all", team_b=10)
    await world.create(nodes_full("team-a", 10))
    await shared_as(world, "each has its half", team_a=5, team_b=5)
    await typist.type("kubectl delete queue team-a team-b")


async def test_four_models_share_one_gpu(typist: Typist) -> None:
    *_, table = await typist.follow(PAGE, "Run four models on one GPU", "created", "condition met", "default/models-")
    rows = [line.split() for line in table.splitlines() if "default/models-" in line]
    assert len(rows) == 4
    assert len({(row[-2], row[-1]) for row in rows}) == 1, table


async def test_a_gang_of_64_gpus_starts_once_small_pods_have_moved(typist: Typist, world: EmbeddedWorld) -> None:
    spread = {names.RESTARTABLE: "true", names.PLACEMENT: "spread"}
    await world.create(a_job("web", 3, a_pod("any", a_container(limits=mem(6)), annotations=spread)))
    await shared_as(world, "the small pods run", default=3)
    short = "7 can be placed"
    await typist.follow(PAGE, "Start a gang of 64 GPUs", short, "created", short, "1 move makes room", "")
    await typist.type("gangshare explain group llm", "runs with 8 members")


async def test_queues_by_day_and_night(typist: Typist) -> None:
    said = "is created", "is created", "batch is closed", "batch is open"
    await typist.follow(PAGE, "Share by day and night", *said)
    await typist.type("kubectl delete queue notebooks batch")


async def test_a_rack_is_drained(typist: Typist, world: EmbeddedWorld) -> None:
    await typist.type("kubectl label nodes gpu-0 gpu-1 rack=r1")
    await world.create(nodes_full("team-a", 8))
    await shared_as(world, "eight nodes are full", team_a=8)
    await typist.follow(PAGE, "Drain a rack", "cordoned", "cordoned", "drained", "uncordoned")
    await shared_as(world, "they run elsewhere", team_a=8)
    assert not [pod for pod in await world.pods() if pod["spec"].get("nodeName") in ("gpu-0", "gpu-1")]
