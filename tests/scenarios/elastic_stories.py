"""An elastic job breathes: stories for the embedded cluster and the real one, with a stand-in for ET-operator.

The extender lets pods run for a second before others may take their room, gives an operator ten seconds to let workers
go, and grows jobs into what was idle for two (`ARGS`). node-1 and node-2 have four T4 each.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from protos.contract import names
from protos.contract.training import API_VERSION, JOB_KIND, PLURALS
from tests.scenarios.et_operator import Operator, definitions, name
from tests.scenarios.gangs import all_run, books_agree, until
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.preemption_stories import CLASSES as CLASSES
from tests.scenarios.preemption_stories import gone
from tests.scenarios.stories import T4, event, on, run
from tests.scenarios.world import Object, World

SAMPLE = Path(__file__).parents[2] / "manifests/samples/elastic/trainingjob.yaml"
SPOT = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
ARGS = ["--min-runtime=1", "--scale-in-timeout=10", "--scale-out-delay=2"]
DEFINITIONS = definitions()


def the_sample(most: int) -> Object:
    """The job of the samples, with containers as both worlds can run them, and no more than so many workers."""
    job: Object = yaml.safe_load(SAMPLE.read_text())
    job["spec"]["etReplicaSpecs"]["worker"]["maxReplicas"] = most
    for role in job["spec"]["etReplicaSpecs"].values():
        spec = role["template"]["spec"]
        spec.pop("runtimeClassName", None)
        containers = [{"name": one["name"], "resources": one.get("resources", {})} for one in spec.pop("containers")]
        role["template"] = a_pod("any", *containers, **spec)
    return job


def a_job(label: str, replicas: int, least: int, most: int) -> Object:
    """A TrainingJob on node-1, a whole GPU for each worker."""
    launcher = a_pod("launcher", a_container(), priorityClassName="batch", **on(T4))
    worker = a_pod("worker", a_container(limits={names.WHOLE_GPU: 1}), priorityClassName="batch", **on(T4))
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
        assert scaler["metadata"]["labels"][names.MANAGED_BY] == names.EXTENDER
        await gone(world, *scaler["spec"]["toDelete"]["podNames"])
        assert len(await workers(world, "breathes")) == 2
        told = [e["involvedObject"]["name"] for e in await world.told("default") if e["reason"] == "Preempted"]
        assert not [name for name in told if name.startswith("breathes")]
        assert "preempts" in await event(world, "urgent", "Preempting")
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


async def test_a_job_moves_off_a_node_that_is_about_to_go_without_an_eviction(world: World) -> None:
    job = the_sample(most=4)
    async with operated(world, job):
        homes = await workers_homes(world, name(job))
        home = homes[min(homes)]
        leave = {worker for worker, node in homes.items() if node == home}
        await world.patch("v1", "Node", home, {"spec": {"taints": [SPOT]}})
        try:
            await until(world, lambda: moved(world, name(job), home), "four workers run elsewhere")
            named = [scaler["spec"]["toDelete"]["podNames"] for scaler in await scalers(world, "ScaleIn")]
            assert leave <= set(itertools.chain.from_iterable(named))
            assert f"node {home} is about to be removed" in await event(world, min(leave), "NodeLeaving")
            (node,) = [node for node in (await world.books())["nodes"] if node["name"] == home]
            assert node["problem"] == f"it is about to be removed: it has {SPOT['key']}"
            await books_agree(world)
        finally:
            await world.patch("v1", "Node", home, {"spec": {"taints": None}})


async def workers_homes(world: World, job: str) -> dict[str, str]:
    """The nodes of its workers that run."""
    running = await workers(world, job)
    return {name(pod): pod["spec"]["nodeName"] for pod in await world.pods() if name(pod) in running}


async def moved(world: World, job: str, home: str) -> bool:
    """Whether four of its workers run, all of them elsewhere."""
    nodes = (await workers_homes(world, job)).values()
    return len(nodes) == 4 and home not in nodes
