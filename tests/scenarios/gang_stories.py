"""What users of gangs see, told once: every story runs on the embedded cluster and on the real one.

The machines are those of the other stories: node-1 with four T4 (14 units each), node-2 with eight V100 (31 units
each), twelve GPUs in all.
"""

from __future__ import annotations

from protos.contract import names
from tests.scenarios import gangs
from tests.scenarios.gangs import (
    all_of,
    all_run,
    block_port,
    books_agree,
    bound,
    held,
    holds_nothing,
    in_namespace,
    pods,
    said,
    start,
    started_as_one,
    until,
    with_port,
)
from tests.scenarios.jobs.submitted import Submitted, controlled, gang, operated, submit
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import T4, V100, delete, mem, on, refused_with, run, seat
from tests.scenarios.world import World

WHOLE = {names.WHOLE_GPU: 1}
OTHER = "other"
"""A second namespace."""


async def test_a_gang_starts_as_one_and_each_container_gets_its_gpus(world: World) -> None:
    await start(world, gang("four", pods("four", 4, mem(7))))
    await books_agree(world)


async def test_a_gang_waits_for_its_last_member_and_holds_nothing_until_it_comes(world: World) -> None:
    four = gang("team", pods("team", 4, WHOLE))
    *early, last = four.pods
    for pod in early:
        await world.create_pod(pod)
    assert "3 of 4 members exist" in await said(world, "3 of 4 members exist")
    await refused_with(world, "team-0")
    await holds_nothing(world, four.names)
    await world.create_pod(last)
    await all_run(world, four.names)
    await started_as_one(world, four.names)


async def test_a_gang_without_room_says_what_is_short_and_starts_when_there_is_room(world: World) -> None:
    await run(world, a_pod("first", a_container(limits={names.WHOLE_GPU: 2}), **on(T4)))
    three = gang("late", pods("late", 3, WHOLE, **on(T4)))
    await submit(world, three)
    message = await said(world, "default/late .*short by")
    assert "needs 3×" in message
    assert "2 can be placed: node-1 2; short by 1" in message
    await holds_nothing(world, three.names)
    await delete(world, "first", grace=1)
    await all_run(world, three.names)
    await started_as_one(world, three.names)


async def test_a_lost_members_gpu_is_kept_for_the_one_that_comes_in_its_place(world: World) -> None:
    await run(world, a_pod("first", a_container(limits={names.WHOLE_GPU: 2}), **on(T4)))
    pair = gang("pair", pods("pair", 2, WHOLE, **on(T4)))
    await start(world, pair)
    before = await seat(world, "pair-1")
    await delete(world, "pair-1", grace=1)
    await world.create_pod(a_pod("other", a_container(limits=WHOLE), **on(T4)))
    await refused_with(world, "other")
    await world.create_pod(pair.pods[1])
    await all_run(world, pair.names)
    assert await seat(world, "pair-1") == before
    await books_agree(world)


async def test_of_two_gangs_that_want_the_same_gpus_one_starts_and_the_other_holds_nothing(world: World) -> None:
    both = [gang(name, pods(name, 8, WHOLE)) for name in ("red", "blue")]
    for pair in zip(*(job.pods for job in both), strict=True):
        for pod in pair:
            await world.create_pod(pod)

    started: list[Submitted] = []

    async def one_started() -> bool:
        started[:] = [job for job in both if len(await bound(world, job.names)) == len(job.pods)]
        return bool(started)

    await until(world, one_started, "one of the gangs is bound")
    (winner,) = started
    (loser,) = [job for job in both if job is not winner]
    await holds_nothing(world, loser.names)
    await all_run(world, winner.names)
    await holds_nothing(world, loser.names)
    for name in winner.names:
        await world.delete_pod("default", name, 1)
    await all_run(world, loser.names)
    await started_as_one(world, loser.names)


async def test_members_without_gpus_are_counted_and_start_with_the_others(world: World) -> None:
    launcher, *workers = [a_pod("boss", a_container(limits={"cpu": "100m"})), *pods("hand", 2, WHOLE)]
    job = gang("crew", [launcher, *workers])
    for pod in job.pods[:2]:
        await world.create_pod(pod)
    await said(world, "default/crew .*2 of 3 members exist")
    await refused_with(world, "boss")
    await holds_nothing(world, job.names)
    await world.create_pod(job.pods[2])
    await all_run(world, job.names)
    await started_as_one(world, job.names)


async def test_a_launcher_is_always_among_those_that_start(world: World) -> None:
    boss = a_pod("boss", a_container(limits={"cpu": "100m"}), annotations={names.ROLE: "launcher"})
    hands = pods("hand", 2, {names.WHOLE_GPU: 4}, annotations={names.ROLE: "worker"}, **on(T4))
    job = gang("crew", [*hands, boss], min_member=2)
    await submit(world, job)

    async def two_are_bound() -> bool:
        return len(await bound(world, job.names)) == 2

    await until(world, two_are_bound, "the minimum is bound")
    assert "boss" in await bound(world, job.names)


async def test_each_role_has_a_minimum_of_its_own(world: World) -> None:
    servers = pods("ps", 1, {"cpu": "50m"}, annotations={names.ROLE: "ps"})
    workers = pods("worker", 3, WHOLE, annotations={names.ROLE: "worker"})
    least = {names.MIN_MEMBER_BY_ROLE: '{"ps": 2, "worker": 2}'}
    job = gang("roles", [*servers, *workers], min_member=4)
    told = [{**pod, "metadata": _annotated(pod["metadata"], least)} for pod in job.pods]
    for pod in told:
        await world.create_pod(pod)
    await said(world, "default/roles .*1 of 2 ps exist")
    await holds_nothing(world, job.names)
    last = a_pod("ps-1", a_container(limits={"cpu": "50m"}), annotations=told[0]["metadata"]["annotations"])
    await world.create_pod(last)
    await all_run(world, [*job.names, "ps-1"])


def _annotated(metadata: dict[str, object], more: dict[str, str]) -> dict[str, object]:
    present = metadata["annotations"]
    assert isinstance(present, dict)
    return {**metadata, "annotations": {**present, **more}}


async def test_dozens_of_members_start_on_one_node(world: World) -> None:
    await start(world, gang("crowd", pods("crowd", 24, mem(2), **on(T4))))
    await books_agree(world)


async def test_fractions_slices_whole_gpus_and_none_at_all_go_in_one_gang(world: World) -> None:
    job = gang(
        "mixed",
        [
            a_pod("half", a_container(limits=mem(7))),
            a_pod("sliced", a_container(limits={names.GPU_SLICE: 50})),
            a_pod("whole", a_container(limits={names.WHOLE_GPU: 2})),
            a_pod("spread", a_container(limits=mem(8)), annotations={names.GPU_COUNT: "2"}),
            a_pod("twins", a_container("one", limits=mem(9)), a_container("two", limits=mem(9))),
            a_pod("none", a_container(limits={"cpu": "50m"})),
        ],
    )
    await start(world, job)
    await books_agree(world)


async def test_members_beyond_the_minimum_come_one_by_one_as_there_is_room(world: World) -> None:
    job = gang("elastic", pods("elastic", 5, WHOLE, **on(T4)), min_member=3)
    await submit(world, job)

    async def four_run() -> bool:
        found = await all_of(world, job.names)
        return [pod["status"].get("phase") for pod in found].count("Running") == 4

    await until(world, four_run, "as many as fit run")
    (left,) = set(job.names) - set(await bound(world, job.names))
    await delete(world, next(iter(await bound(world, job.names))), grace=1)
    await all_run(world, [left])


async def test_the_same_name_in_two_namespaces_is_two_groups(world: World) -> None:
    if await world.get("v1", "Namespace", OTHER) is None:
        await world.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}})
    here = gang("twin", pods("twin", 3, WHOLE))
    there = in_namespace(here, OTHER)
    for pod in [*here.pods[:2], *there.pods[:2]]:
        await world.create_pod(pod)
    for namespace in ("default", OTHER):
        await said(world, f"{namespace}/twin .*2 of 3 members exist", namespace)
        await holds_nothing(world, here.names, namespace)
    await world.create_pod(there.pods[2])
    await all_run(world, there.names, OTHER)
    await holds_nothing(world, here.names)


async def test_a_pod_under_a_used_name_is_a_new_member(world: World) -> None:
    job = gang("again", pods("again", 3, WHOLE))
    for pod in job.pods[:2]:
        await world.create_pod(pod)
    await said(world, "default/again .*2 of 3 members exist")
    await delete(world, "again-0")
    await world.create_pod(job.pods[0])
    await refused_with(world, "again-0")
    await holds_nothing(world, job.names)
    await world.create_pod(job.pods[2])
    await all_run(world, job.names)
    await started_as_one(world, job.names)


async def test_a_member_deleted_while_its_gang_starts_is_replaced(world: World) -> None:
    async with operated(world, job := controlled(gang("brittle", pods("brittle", 8, WHOLE)))):
        for victim in ("brittle-3", "brittle-6"):
            await world.delete_pod("default", victim, 1)
        await all_run(world, job.names)
    await books_agree(world)


async def test_an_ordinary_pod_is_bound_while_members_are_held(world: World) -> None:
    blockers = await block_port(world, T4, V100)
    *plain, last = pods("patient", 5, WHOLE)
    job = gang("patient", [*plain, with_port(last)])
    await submit(world, job)
    await _until_held(world, [pod["metadata"]["name"] for pod in plain])
    await world.create_pod(a_pod("passing", a_container(limits=mem(3))))

    async def passed() -> bool:
        assert await bound(world, job.names) == [], "the gang has not started meanwhile"
        return bool(await bound(world, ["passing"]))

    await until(world, passed, "the ordinary pod is bound")
    for name in blockers:
        await delete(world, name, grace=1)
    await all_run(world, [*job.names, "passing"])
    await started_as_one(world, job.names)
    await books_agree(world)


async def test_a_node_that_kube_scheduler_keeps_a_member_off_is_planned_around(world: World) -> None:
    await block_port(world, T4)
    *plain, last = pods("detour", 3, WHOLE)
    await start(world, gang("detour", [*plain, with_port(last)]))
    (pod,) = await all_of(world, ["detour-2"])
    assert pod["spec"]["nodeName"] == V100


async def test_members_that_cannot_all_come_let_go_so_that_others_can(world: World) -> None:
    await block_port(world, T4, V100)
    *plain, last = pods("stuck", 10, WHOLE)
    job = gang("stuck", [*plain, with_port(last)])
    await submit(world, job)
    await _until_held(world, [pod["metadata"]["name"] for pod in plain])
    await start(world, gang("nimble", pods("nimble", 6, WHOLE)))
    assert await bound(world, job.names) == []


async def test_an_extender_killed_while_members_are_held_goes_on_with_them(world: World) -> None:
    blockers = await block_port(world, T4, V100)
    *plain, last = pods("held", 5, WHOLE)
    job = gang("held", [*plain, with_port(last)])
    await submit(world, job)
    await _until_held(world, [pod["metadata"]["name"] for pod in plain])
    await world.restart_extender(kill=True)
    for name in blockers:
        await delete(world, name, grace=1)
    await all_run(world, job.names)
    await books_agree(world)


async def test_an_extender_killed_while_it_binds_leaves_no_half_gang(world: World) -> None:
    async with operated(world, job := controlled(gang("torn", pods("torn", 12, WHOLE)))):

        async def begun() -> bool:
            return bool(await bound(world, job.names))

        await until(world, begun, "the first is bound")
        await world.restart_extender(kill=True)
        await all_run(world, job.names)
    await books_agree(world)


async def test_restarts_leave_a_running_gang_alone_and_a_waiting_one_goes_on(world: World) -> None:
    running, waiting = gang("runs", pods("runs", 8, WHOLE)), gang("waits", pods("waits", 6, WHOLE))
    await start(world, running)
    before = [pod["metadata"]["uid"] for pod in await all_of(world, running.names)]
    await submit(world, waiting)
    await said(world, "default/waits .*short by")
    await world.restart_extender(kill=True)
    await world.restart_scheduler(kill=True)
    await holds_nothing(world, waiting.names)
    found = await all_of(world, running.names)
    assert [pod["metadata"]["uid"] for pod in found] == before
    assert sum(status["restartCount"] for pod in found for status in pod["status"]["containerStatuses"]) == 0
    for name in running.names:
        await world.delete_pod("default", name, 1)
    await all_run(world, waiting.names)


async def _until_held(world: World, wanted: list[str]) -> None:
    async def all_held() -> bool:
        return sorted(await held(world, wanted)) == sorted(wanted)

    await until(world, all_held, f"{', '.join(wanted)} are held")


async def tidy(world: World) -> None:
    await gangs.tidy(world, ("default", OTHER))
