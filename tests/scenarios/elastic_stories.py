"""An elastic job breathes: stories for the embedded cluster and the real one, with a stand-in for ET-operator.

The extender lets pods run for a second before others may take their room, gives an operator ten seconds to let workers
go, and grows jobs into what was idle for two (`ARGS`). node-1 has four T4.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from extender.sim import training
from extender.sim.training import Operator, name
from protos.contract import names
from protos.contract.training import API_VERSION, JOB_KIND, MANAGED_BY, PLURALS
from tests.scenarios.gangs import all_run, books_agree, until
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.preemption_stories import CLASSES as CLASSES
from tests.scenarios.preemption_stories import gone
from tests.scenarios.stories import T4, event, on, run
from tests.scenarios.world import Object, World

ARGS = ["--min-run=1", "--scale-in=10", "--grow-after=2"]
DEFINITIONS = training.definitions()


def a_job(label: str, replicas: int, least: int, most: int, priority: str = "batch") -> Object:
    """A TrainingJob on the T4s, a whole GPU for each worker."""
    launcher = a_pod("launcher", a_container(), priorityClassName=priority, **on(T4))
    worker = a_pod("worker", a_container(limits={names.WHOLE_GPU: 1}), priorityClassName=priority, **on(T4))
    sizes = {"replicas": replicas, "minReplicas": least, "maxReplicas": most}
    specs = {"launcher": {"replicas": 1, "template": launcher}, "worker": {**sizes, "template": worker}}
    metadata = {"name": label, "namespace": "default"}
    return {"apiVersion": API_VERSION, "kind": JOB_KIND, "metadata": metadata, "spec": {"etReplicaSpecs": specs}}


@asynccontextmanager
async def operated(world: World, job: Object) -> AsyncIterator[Operator]:
    """The job, until it runs; its operator works until the block ends."""
    operator = Operator(world)
    working = asyncio.create_task(operator.run())
    try:
        await world.create(job)
        await until(world, lambda: phase_is(world, name(job), "Running"), f"{name(job)} runs")
        yield operator
    finally:
        working.cancel()
        (ended,) = await asyncio.gather(working, return_exceptions=True)
        for kind in (JOB_KIND, *PLURALS):
            for found in await world.items(API_VERSION, kind):
                await world.delete(API_VERSION, kind, name(found))
        if isinstance(ended, Exception):
            raise ended


async def phase_is(world: World, job: str, phase: str) -> bool:
    found = await world.get(API_VERSION, JOB_KIND, job)
    return bool(found) and (found or {}).get("status", {}).get("phase") == phase


async def workers(world: World, job: str) -> list[str]:
    """The names of its workers that run."""
    pods = [pod for pod in await world.pods() if pod["status"].get("phase") == "Running"]
    return sorted(name(pod) for pod in pods if name(pod).startswith(f"{job}-worker-"))


async def whole_again(world: World, job: str, count: int) -> bool:
    """Whether so many workers run, and nothing is under way for the job."""
    return len(await workers(world, job)) == count and await phase_is(world, job, "Running")


async def scalers(world: World, kind: str) -> list[Object]:
    return await world.items(API_VERSION, kind)


def urgent(label: str, gpus: int) -> Object:
    return a_pod(label, a_container(limits={names.WHOLE_GPU: gpus}), priorityClassName="urgent", **on(T4))


async def test_a_job_shrinks_by_a_scalein_before_anybody_is_evicted_and_grows_back(world: World) -> None:
    async with operated(world, a_job("breathes", 4, 2, 4)):
        await run(world, urgent("urgent", 2))
        (scaler,) = await scalers(world, "ScaleIn")
        assert scaler["metadata"]["labels"][MANAGED_BY] == names.EXTENDER
        await gone(world, *scaler["spec"]["toDelete"]["podNames"])
        assert len(await workers(world, "breathes")) == 2
        assert not [e for e in await world.told("default") if e["reason"] == "Preempted"]
        assert "takes the room" in await event(world, "urgent", "Preempting")
        await books_agree(world)
        await world.delete_pod("default", "urgent", 1)
        await until(world, lambda: whole_again(world, "breathes", 4), "it has grown back")
        (grown,) = await scalers(world, "ScaleOut")
        assert grown["spec"]["toAdd"]["count"] == 2
        gave = scaler["spec"]["toDelete"]["podNames"]
        newest = max(i for i in range(4) if f"breathes-worker-{i}" not in gave)
        came = [f"breathes-worker-{newest + i}" for i in (1, 2)]
        assert grown["status"]["addPods"] == came
        await all_run(world, came)
        await books_agree(world)


async def test_workers_that_their_launcher_keeps_are_evicted_when_the_time_is_over(world: World) -> None:
    async with operated(world, a_job("keeps", 4, 3, 4)) as operator:
        operator.keeps |= {f"keeps-worker-{i}" for i in range(4)}
        await run(world, urgent("urgent", 1))
        (scaler,) = await scalers(world, "ScaleIn")
        (evicted,) = scaler["spec"]["toDelete"]["podNames"]
        assert "default/urgent of priority 1000" in await event(world, evicted, "Preempted")
        await all_run(world, ["keeps-launcher", "urgent"])
