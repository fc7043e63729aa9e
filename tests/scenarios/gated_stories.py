"""What users see of gangs that are born behind our scheduling gate: on the embedded cluster and on the real one.

The machines are those of the other stories, twelve GPUs in all, and nothing else runs there.
"""

from __future__ import annotations

import asyncio
import os

from protos.contract import names
from tests.scenarios.gangs import all_of, all_run, books_agree, bound, holds_nothing, pods, said, started_as_one, until
from tests.scenarios.jobs.submitted import controlled, gang, operated, submit
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import T4, V100, delete, mem, on, run
from tests.scenarios.world import Object, World

WHOLE = {names.WHOLE_GPU: 1}
QUIET_S = float(os.environ.get("GANGSHARE_QUIET_SECONDS", "10"))
"""For which nobody must be asked for."""
OTHERS = "example.com/hold"
"""Somebody else's gate."""


def gates(pod: Object) -> list[str]:
    """The pod's scheduling gates."""
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


async def gated(world: World, wanted: list[str]) -> list[str]:
    """Those of these pods that wait behind our gate."""
    return [pod["metadata"]["name"] for pod in await all_of(world, wanted) if names.PLAN_GATE in gates(pod)]


async def test_a_gated_gang_starts_as_one_in_any_dialect(world: World) -> None:
    theirs = {"scheduling.k8s.io/group-name": "theirs", "scheduling.k8s.io/group-min-member": "3"}
    named = pods("theirs", 3, mem(5), annotations=theirs)
    for pod in named:
        await world.create_pod(pod)
    await all_run(world, ["theirs-0", "theirs-1", "theirs-2"])
    await started_as_one(world, ["theirs-0", "theirs-1", "theirs-2"])
    await books_agree(world)


async def test_a_gated_gang_that_does_not_fit_costs_nobody_a_question_and_starts_when_there_is_room(
    world: World,
) -> None:
    await run(world, a_pod("first", a_container(limits={names.WHOLE_GPU: 2}), **on(T4)))
    job = gang("late", pods("late", 3, WHOLE, **on(T4)))
    await submit(world, job)
    assert "2 can be placed: node-1 2; short by 1" in await said(world, "default/late .*short by")
    assert await gated(world, job.names) == job.names
    before = await world.questions()
    await run(world, *pods("passer-by", 2, {names.WHOLE_GPU: 1}, **on(V100)))
    await delete(world, "passer-by-0", grace=1)
    await asyncio.sleep(QUIET_S)
    assert await world.questions() == before + 2, "of the pods passing by alone"
    await holds_nothing(world, job.names)
    await delete(world, "first", grace=1)
    await all_run(world, job.names)
    await started_as_one(world, job.names)
    assert await gated(world, job.names) == []


async def test_a_gated_gang_whose_members_are_missing_is_not_asked_for(world: World) -> None:
    job = gang("team", pods("team", 3, WHOLE))
    before = await world.questions()
    for pod in job.pods[:2]:
        await world.create_pod(pod)
    assert "2 of 3 members exist" in await said(world, "default/team .*2 of 3 members exist")
    assert (await gated(world, job.names), await world.questions()) == (job.names[:2], before)
    await world.create_pod(job.pods[2])
    await all_run(world, job.names)


async def test_an_extender_that_is_killed_lets_them_through_when_it_is_back(world: World) -> None:
    await run(world, a_pod("first", a_container(limits={names.WHOLE_GPU: 2}), **on(T4)))
    job = gang("late", pods("late", 3, WHOLE, **on(T4)))
    await submit(world, job)
    await said(world, "default/late .*short by")
    await world.restart_extender(kill=True)
    await delete(world, "first", grace=1)
    await all_run(world, job.names)
    await started_as_one(world, job.names)


async def test_an_extender_killed_in_the_middle_of_a_gated_start_leaves_no_half_gang(world: World) -> None:
    async with operated(world, job := controlled(gang("cut", pods("cut", 12, mem(5))))):
        await until(world, lambda: _some_are_through(world, job.names), "somebody is let through")
        await world.restart_extender(kill=True)
        await all_run(world, job.names)
    await books_agree(world)


async def _some_are_through(world: World, wanted: list[str]) -> bool:
    found = await all_of(world, wanted)
    return len(found) == len(wanted) and len(await gated(world, wanted)) < len(wanted)


async def test_a_member_made_anew_and_a_further_one_come_when_there_is_room(world: World) -> None:
    await run(world, a_pod("rest", a_container(limits={names.WHOLE_GPU: 8}), **on(V100)))
    job = controlled(gang("pair", pods("pair", 3, {names.WHOLE_GPU: 2}), min_member=2))
    first, second, third = job.pods
    await world.create_pod(first)
    await world.create_pod(second)
    await all_run(world, job.names[:2])
    before = await world.questions()
    await world.create_pod(third)
    await until(world, lambda: _waits_gated(world, "pair-2"), "the third waits")
    await asyncio.sleep(1)
    assert (await gated(world, ["pair-2"]), await world.questions()) == (["pair-2"], before)
    await delete(world, "pair-0", grace=1)
    await all_run(world, ["pair-1", "pair-2"])
    await world.create_pod(first)
    await until(world, lambda: _waits_gated(world, "pair-0"), "it waits for room in turn")
    await delete(world, "pair-1", grace=1)
    await all_run(world, ["pair-0", "pair-2"])


async def _waits_gated(world: World, name: str) -> bool:
    return await gated(world, [name]) == [name]


async def test_what_is_of_no_group_is_not_gated_and_what_leaves_its_group_is_let_through(world: World) -> None:
    await run(world, a_pod("single", a_container(limits=mem(5))))
    by_hand = a_pod("by-hand", a_container(limits=mem(5)))
    by_hand["spec"]["schedulingGates"] = [{"name": names.PLAN_GATE}]
    await run(world, by_hand)
    nonsense = a_pod("nonsense", a_container(limits=mem(7)), annotations={names.GPU_COUNT: "2", names.GROUP: "none"})
    await world.create_pod(nonsense)
    await until(world, lambda: _is_refused(world, "nonsense"), "it is refused with a sentence")


async def _is_refused(world: World, name: str) -> bool:
    pod = await world.pod("default", name)
    conditions = (pod or {}).get("status", {}).get("conditions", ())
    return any(c["type"] == "PodScheduled" and c["reason"] == "Unschedulable" for c in conditions)


async def test_the_gate_of_somebody_else_stays_and_is_waited_for(world: World) -> None:
    job = gang("held", pods("held", 2, mem(5)))
    for pod in job.pods:
        await world.create_pod({**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": OTHERS}]}})
    await said(world, "default/held .*0 of 2 members exist")
    assert [sorted(gates(pod)) for pod in await all_of(world, job.names)] == [sorted([OTHERS, names.PLAN_GATE])] * 2
    for name in job.names:
        await world.open_gate("default", name, OTHERS)
    await all_run(world, job.names)
    assert len(await bound(world, job.names)) == 2
