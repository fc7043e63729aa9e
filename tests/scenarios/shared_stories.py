"""What users of gangs see where the cluster's one scheduler asks us: every story runs on both kinds of cluster.

There pods without GPUs are bound by kube-scheduler itself. The machines are those of the other stories.
"""

from __future__ import annotations

from protos.contract import names
from tests.scenarios.gangs import (
    all_of,
    all_run,
    books_agree,
    bound,
    holds_nothing,
    pods,
    said,
    start,
    started_as_one,
    until,
    with_port,
)
from tests.scenarios.jobs.submitted import Submitted, controlled, gang, operated, submit
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import T4, V100, delete, on, refused_with
from tests.scenarios.world import Object, World

WHOLE = {names.WHOLE_GPU: 1}
SCHEDULER = "default-scheduler"


def theirs(pod: Object) -> Object:
    """The pod, for the cluster's one scheduler."""
    return {**pod, "spec": {**pod["spec"], "schedulerName": SCHEDULER}}


def a_launcher(name: str = "boss") -> Object:
    return theirs(a_pod(name, a_container(limits={"cpu": "50m"})))


def workers(count: int, **more: object) -> list[Object]:
    return [theirs(pod) for pod in pods("hand", count, WHOLE, **more)]


def crew(count: int = 2, **more: object) -> Submitted:
    """A launcher without GPUs and workers with one each; somebody makes them anew."""
    return controlled(gang("crew", [a_launcher(), *workers(count, **more)]))


async def test_a_launcher_without_gpus_starts_with_its_workers(world: World) -> None:
    await start(world, crew())
    await books_agree(world)


async def test_the_launcher_made_last_starts_with_its_workers(world: World) -> None:
    boss, *hands = crew().pods
    for pod in [*hands, boss]:
        await world.create_pod(pod)
    await all_run(world, ["hand-0", "hand-1", "boss"])
    await started_as_one(world, ["hand-0", "hand-1", "boss"])


async def test_the_launcher_waits_for_the_last_worker(world: World) -> None:
    job = crew()
    for pod in job.pods[:2]:
        await world.create_pod(pod)
    await said(world, "default/crew .*2 of 3 members exist")
    await refused_with(world, "boss")
    await holds_nothing(world, job.names)
    await world.create_pod(job.pods[2])
    await all_run(world, job.names)
    await started_as_one(world, job.names)


async def test_without_room_for_the_workers_the_launcher_waits_too(world: World) -> None:
    blocker = theirs(a_pod("first", a_container(limits={names.WHOLE_GPU: 3}), **on(T4)))
    await world.create_pod(blocker)
    await all_run(world, ["first"])
    job = crew(2, **on(T4))
    await submit(world, job)
    assert "short by 1" in await said(world, "default/crew .*short by")
    await refused_with(world, "boss")
    await holds_nothing(world, job.names)
    await delete(world, "first", grace=1)
    await all_run(world, job.names)
    await started_as_one(world, job.names)


async def test_several_without_gpus_and_a_gang_of_nothing_else(world: World) -> None:
    await start(world, gang("mixed", [a_launcher("one"), a_launcher("two"), *workers(2)]))
    alone = gang("plain", [a_launcher("red"), a_launcher("green"), a_launcher("blue")])
    for pod in alone.pods[:2]:
        await world.create_pod(pod)
    await said(world, "default/plain .*2 of 3 members exist")
    assert await bound(world, alone.names) == []
    await world.create_pod(alone.pods[2])
    await all_run(world, alone.names)


async def test_ordinary_pods_are_nobodys_business_while_a_gang_waits(world: World) -> None:
    job = crew()
    for pod in job.pods[:2]:
        await world.create_pod(pod)
    await said(world, "default/crew .*2 of 3 members exist")
    for number in range(5):
        await world.create_pod(a_launcher(f"plain-{number}"))
    await all_run(world, [f"plain-{number}" for number in range(5)])
    assert await bound(world, job.names) == []


async def test_a_gang_that_is_too_large_says_so_and_nobody_starts(world: World) -> None:
    job = gang("host", [a_launcher(), *workers(2)], 501)
    await submit(world, job)
    assert "too large" in await said(world, "its minimum is 501 members, and at most 500 can start together here")
    await refused_with(world, "boss")
    await refused_with(world, "hand-0")
    await holds_nothing(world, job.names)


async def test_a_launcher_kept_off_its_node_is_planned_around(world: World) -> None:
    await world.create_pod(with_port(theirs(a_pod("port", **on(T4)))))
    await all_run(world, ["port"])
    boss, *hands = crew().pods
    await start(world, Submitted(pods=(with_port(boss), *hands)))
    (pod,) = await all_of(world, ["boss"])
    assert pod["spec"]["nodeName"] == V100


async def test_a_launcher_that_is_deleted_is_replaced(world: World) -> None:
    async with operated(world, job := crew()):
        await all_run(world, job.names)
        await delete(world, "boss", grace=1)
        await all_run(world, job.names)
    await books_agree(world)


async def test_the_extender_killed_while_a_gang_starts_costs_it_nothing(world: World) -> None:
    async with operated(world, job := crew(6)):
        await world.restart_extender(kill=True)
        await all_run(world, job.names)
    await books_agree(world)


async def test_while_the_extender_is_away_pods_without_gpus_go_their_way_members_too(world: World) -> None:
    await world.stop_extender()
    try:
        job = crew()
        await submit(world, job)
        await world.create_pod(a_launcher("plain"))
        await all_run(world, ["plain", "boss"])
        assert await bound(world, job.names) == ["boss"]
    finally:
        await world.restart_extender()

    async def whole() -> bool:
        return len(await bound(world, job.names)) == 3

    await until(world, whole, "the workers have followed")
    await all_run(world, job.names)
