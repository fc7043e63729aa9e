"""Who waits takes the room of others of lower priority: stories for the embedded cluster and the real one.

The extender lets others take the room of pods that have only begun to run (`ARGS`): whose room is taken does not hang
on how fast the stories go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protos.contract import names
from tests.scenarios.gangs import all_run, books_agree, holds_nothing, pods, said, started_as_one
from tests.scenarios.jobs.submitted import Submitted, gang, submit
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.queue_stories import a_queue, has, known
from tests.scenarios.stories import T4, event, mem, on, phase, run, seat, until
from tests.scenarios.world import Object, World

ARGS = ["--min-runtime=0"]
WHOLE = {names.WHOLE_GPU: 1}
CLASSES: list[Object] = [
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
    for name, value in (("spot", 5), ("batch", 10), ("urgent", 1000))
]
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "stays", "namespace": "default"},
    "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "stays"}}},
}


def of(priority: str, name: str, count: int, **more: Any) -> Submitted:
    """A gang of this priority on the T4s, a whole GPU each."""
    return gang(name, pods(name, count, WHOLE, priorityClassName=priority, **on(T4), **more))


def a_single(name: str, priority: str, amount: int, **more: Any) -> Object:
    return a_pod(name, a_container(limits=mem(amount)), priorityClassName=priority, **on(T4), **more)


async def gone(world: World, *names: str) -> None:
    async def none() -> bool:
        return not any([await world.pod("default", name) for name in names])

    await until(world, none, f"{', '.join(names)} are gone")


async def test_a_gang_takes_the_cheapest_whole_gang_and_nothing_more(world: World) -> None:
    dear, cheap = of("batch", "dear", 2), of("spot", "cheap", 2)
    for job in (dear, cheap):
        await submit(world, job)
        await all_run(world, job.names)
    urgent = of("urgent", "urgent", 2)
    await submit(world, urgent)
    assert "gang default/urgent preempts" in await said(world, "preempts pods of lower priority: gang")
    await all_run(world, urgent.names)
    await started_as_one(world, urgent.names)
    await gone(world, *cheap.names)
    assert "gang default/urgent of priority 1000" in await event(world, cheap.names[0], "Preempted")
    await all_run(world, dear.names)
    await books_agree(world)


async def test_a_pod_takes_a_part_of_a_gpu_and_all_others_stay(world: World) -> None:
    await run(world, *(a_single(f"low-{i}", "batch", 12) for i in range(4)))
    await world.create_pod(a_single("high", "urgent", 8))
    await until(world, lambda: _runs(world, "high"), "high runs")
    left = [f"low-{i}" for i in range(4) if await phase(world, f"low-{i}") == "Running"]
    assert len(left) == 3
    assert await seat(world, "high") not in [await seat(world, name) for name in left]
    await books_agree(world)


async def test_a_budget_keeps_those_that_it_guards(world: World) -> None:
    await world.create(BUDGET)
    try:
        await run(world, *(a_single(f"kept-{i}", "batch", 12, labels={"app": "stays"}) for i in range(4)))
        await world.create_pod(a_single("denied", "urgent", 8))
        message = await event(world, "denied", "PreemptionForbidden")
        assert "PodDisruptionBudget default/stays allows 0 more evictions" in message
        await holds_nothing(world, ["denied"])
    finally:
        await world.delete("policy/v1", "PodDisruptionBudget", "stays")
    await until(world, lambda: _runs(world, "denied"), "it takes the room once nothing forbids that")
    assert len([i for i in range(4) if await phase(world, f"kept-{i}") == "Running"]) == 3


# -- tenants


def in_queue(name: str) -> dict[str, Any]:
    return {"annotations": {names.QUEUE: name}}


async def borrowed(world: World, a: Object, b: Object, *called: str) -> list[Submitted]:
    """All four GPUs are with two gangs of queue `a`, which are `called` so."""
    for each in (a, b):
        await world.create(each)
    await known(world, "a", "b")
    jobs = [of("batch", name, 2, **in_queue("a")) for name in called]
    for job in jobs:
        await submit(world, job)
        await all_run(world, job.names)
    return jobs


async def one_gone(world: World, jobs: Sequence[Submitted]) -> tuple[Submitted, Submitted]:
    """Until one of two gangs is gone, and who that is; then the one that stays."""

    async def none(job: Submitted) -> bool:
        return not any([await world.pod("default", name) for name in job.names])

    async def one() -> bool:
        return any([await none(job) for job in jobs])

    await until(world, one, "one of two gangs is gone")
    first, second = jobs
    return (first, second) if await none(first) else (second, first)


async def test_a_borrower_is_brought_back_to_what_it_deserves_and_stays_there(world: World) -> None:
    deserved = {"deserved": {"gpus": 2}}
    jobs = await borrowed(world, a_queue("a", **deserved), a_queue("b", **deserved), "first", "second")
    mine = of("spot", "mine", 2, **in_queue("b"))
    await submit(world, mine)
    message = await said(world, "gang default/mine reclaims the fair share of its queue: gang")
    assert "queue a has 4 GPUs, 2 GPUs are its due" in message
    await all_run(world, mine.names)
    _, left = await one_gone(world, jobs)
    await all_run(world, left.names)
    for name in ("a", "b"):
        await has(world, name, 2)
    await books_agree(world)


async def test_a_tenant_of_higher_priority_takes_exactly_what_it_needs(world: World) -> None:
    jobs = await borrowed(world, a_queue("a"), a_queue("b", priority=1), "third", "fourth")
    mine = of("spot", "one", 1, **in_queue("b"))
    await submit(world, mine)
    await all_run(world, mine.names)
    went, left = await one_gone(world, jobs)
    assert "queue a has 4 GPUs, 3 GPUs are its due" in await event(world, went.names[0], "Reclaimed")
    await all_run(world, left.names)
    await books_agree(world)


async def test_of_two_priorities_in_a_full_queue_the_higher_runs_and_other_tenants_stay(world: World) -> None:
    await world.create(a_queue("a", capability={"gpus": 2}))
    await world.create(a_queue("b"))
    await known(world, "a", "b")
    theirs, low = of("spot", "theirs", 2, **in_queue("b")), of("batch", "low", 2, **in_queue("a"))
    for job in (theirs, low):
        await submit(world, job)
        await all_run(world, job.names)
    urgent = of("urgent", "urgent", 2, **in_queue("a"))
    await submit(world, urgent)
    await all_run(world, urgent.names)
    await gone(world, *low.names)
    await all_run(world, theirs.names)
    await has(world, "a", 2)
    await books_agree(world)


async def _runs(world: World, name: str) -> bool:
    return await phase(world, name) == "Running"
