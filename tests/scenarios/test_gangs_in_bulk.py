"""Many gangs and large ones on the embedded cluster, on nodes without plugins."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from extender.sim.apiserver.errors import ApiError
from protos.contract import names
from tests.scenarios import embedded, gangs
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.gangs import all_run, bound, holds_nothing, pods, said, until
from tests.scenarios.jobs.submitted import Submitted, controlled, gang, operated, submit
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import delete, run

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
NODES, EACH = 25, 4
GPUS = NODES * EACH
WHOLE = {names.WHOLE_GPU: 1}
HALF_GANG_S = 30.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    nodes = [embedded.a_bare_node(f"bare-{i}", EACH) for i in range(NODES)]
    async with embedded.a_cluster(*nodes) as cluster:
        yield EmbeddedWorld(cluster)


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    running.cluster.server.refuse = lambda _method, _path: None
    await gangs.tidy(running)


async def test_a_hundred_on_room_for_ninety_nine_hold_nothing_and_start_with_one_more(world: EmbeddedWorld) -> None:
    await run(world, a_pod("filler", a_container(limits=WHOLE)))
    hundred = gang("hundred", pods("hundred", GPUS, WHOLE))
    await submit(world, hundred)
    assert "short by 1" in await said(world, "default/hundred .*short by")
    await holds_nothing(world, hundred.names)
    await delete(world, "filler", grace=1)
    await all_run(world, hundred.names)


async def test_two_gangs_interleaved_on_the_slots_of_one_start_one_after_the_other(world: EmbeddedWorld) -> None:
    await run(world, *[a_pod(f"filler-{i}", a_container(limits={names.WHOLE_GPU: EACH})) for i in range(12)])
    fifty = [gang(name, pods(name, 50, WHOLE, run_seconds=2)) for name in ("left", "right")]
    for pair in zip(*(job.pods for job in fifty), strict=True):
        for pod in pair:
            await world.create_pod(pod)
    left, right = (job.names for job in fifty)

    async def both_were_bound() -> bool:
        counts = sorted([len(await bound(world, left)), len(await bound(world, right))])
        assert counts[0] == 0 or counts[1] == 50, "the second begins when the first has started as a whole"
        return counts == [50, 50]

    await until(world, both_were_bound, "both were bound, one after the other")


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 50))])
async def test_whatever_happens_no_gang_is_half_for_long_and_all_end(world: EmbeddedWorld, seed: int) -> None:
    chance = random.Random(seed)
    _refuse_some_bindings(world, chance)
    jobs = [_a_job(f"g{seed}-{i}", chance) for i in range(20)]
    async with asyncio.TaskGroup() as group:
        disturbing = group.create_task(_disturb(world, jobs, chance))
        for job in jobs:
            group.create_task(_see_through(world, job))
            await asyncio.sleep(chance.uniform(0, 0.3))
        group.create_task(_watch_for_halves(world, jobs, disturbing))


def _a_job(name: str, chance: random.Random) -> Submitted:
    """Up to eight members with up to four GPUs, and perhaps one without any, that all run for a second at last."""
    limits = {names.WHOLE_GPU: chance.choice([1, 1, 2, 4])} if chance.random() < 0.7 else {names.GPU_MEM: 7}
    members = pods(name, chance.randint(2, 8), limits, run_seconds=1)
    if chance.random() < 0.3:
        members = [*members, a_pod(f"{name}-boss", a_container(limits={"cpu": "1"}), run_seconds=1)]
    return controlled(gang(name, members))


def _refuse_some_bindings(world: EmbeddedWorld, chance: random.Random) -> None:
    def refuse(method: str, path: str) -> ApiError | None:
        unlucky = method == "POST" and path.endswith("/binding") and chance.random() < 0.1
        return ApiError(500, "InternalError", "etcdserver: request timed out") if unlucky else None

    world.cluster.server.refuse = refuse


async def _see_through(world: EmbeddedWorld, job: Submitted) -> None:
    async with operated(world, job):

        async def over() -> bool:
            found = [await world.pod("default", name) for name in job.names]
            return all(pod is not None and pod["status"]["phase"] == "Succeeded" for pod in found)

        await until(world, over, f"{job.names[0]} and the others have succeeded", 100)


async def _disturb(world: EmbeddedWorld, jobs: Sequence[Submitted], chance: random.Random) -> None:
    """Deaths, and processes killed."""
    for _ in range(12):
        await asyncio.sleep(chance.uniform(0.2, 1.2))
        match chance.randrange(6):
            case 0:
                await world.restart_extender(kill=True)
            case 1:
                await world.restart_scheduler(kill=chance.random() < 0.5)
            case _:
                name = chance.choice(chance.choice(jobs).names)
                pod = await world.pod("default", name)
                if pod and pod["status"]["phase"] != "Succeeded":  # nobody makes those anew
                    await world.delete_pod("default", name, 1)


async def _watch_for_halves(world: EmbeddedWorld, jobs: Sequence[Submitted], until_done: asyncio.Task[None]) -> None:
    """No gang is bound in part for longer than it may be."""
    since: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    while not until_done.done() or since:
        for job in jobs:
            name, count = job.names[0], len(await bound(world, job.names))
            if count in (0, len(job.pods)):
                since.pop(name, None)
            else:
                started = since.setdefault(name, loop.time())
                told = f"{name}: {count} of {len(job.pods)} are bound"
                assert loop.time() < started + HALF_GANG_S + 5, f"{told}; {await _why(world, job)}"
        await asyncio.sleep(0.1)


async def _why(world: EmbeddedWorld, job: Submitted) -> object:
    """What is known of the members."""
    found = [await world.pod("default", name) for name in job.names]
    pods = [(p["metadata"]["name"], p["status"]["phase"], p["spec"].get("nodeName")) for p in found if p]
    waiting = [pod for pod in (await world.books()).get("waiting", ()) if pod["name"] in job.names]
    return pods, waiting
