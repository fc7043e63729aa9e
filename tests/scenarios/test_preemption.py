"""The stories about preemption on the embedded cluster, with the unchanged extender and plugins."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from extender.sim.kubelet.status import NodeSpec
from tests.scenarios import embedded, gangs, podgroups, queue_stories
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.gangs import all_run, books_agree, holds_nothing, pods, said
from tests.scenarios.jobs.submitted import gang, submit
from tests.scenarios.preemption_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.preemption_stories import ARGS, CLASSES, WHOLE, gone, of
from tests.scenarios.stories import T4, event, on

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    async with embedded.a_cluster(
        NodeSpec(name=T4, profile="t4x4"), extender_args=[*ARGS, "--gang-bind-timeout=4", "--group-priority=10"]
    ) as cluster:
        world = EmbeddedWorld(cluster)
        for each in CLASSES:
            await world.create(each)
        await world.define(queue_stories.definitions()[0])
        await world.define(podgroups.our_definition())
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running)
    await queue_stories.tidy_queues(running, queue_stories.QUEUE)


async def test_an_extender_killed_between_two_evictions_is_followed_by_one_that_finishes(world: EmbeddedWorld) -> None:
    dear, cheap, urgent = of("batch", "dear", 2), of("spot", "cheap", 2), of("urgent", "urgent", 2)
    for job in (dear, cheap):
        await submit(world, job)
        await all_run(world, job.names)
    world.kill_extender_at("eviction", 2)
    await submit(world, urgent)
    await world.extender_killed()
    await world.restart_extender()
    await all_run(world, urgent.names)
    await gone(world, *cheap.names)
    await all_run(world, dear.names)
    await books_agree(world)


async def test_a_gang_counts_by_the_class_that_its_podgroup_names(world: EmbeddedWorld) -> None:
    above, below = of("urgent", "above", 2), of("spot", "below", 2)
    for job in (above, below):
        await submit(world, job)
        await all_run(world, job.names)
    group = {"apiVersion": podgroups.OURS, "kind": "PodGroup", "metadata": {"name": "named", "namespace": "default"}}
    await world.create({**group, "spec": {"minMember": 2, "priorityClassName": "batch"}})
    named = gang("named", pods("named", 2, WHOLE, **on(T4)))
    await submit(world, named)
    await all_run(world, named.names)
    await gone(world, *below.names)
    assert "gang default/named of priority 10" in await event(world, below.names[0], "Preempted")
    await all_run(world, above.names)
    assert [e for e in await world.events("default", named.names[0]) if e.get("reason") == "PriorityCapped"] == []
    await world.delete(podgroups.OURS, "PodGroup", "named")
    await books_agree(world)


async def test_a_podgroups_class_gives_no_more_than_the_setting_and_that_is_told(world: EmbeddedWorld) -> None:
    batch = of("batch", "batch", 4)
    await submit(world, batch)
    await all_run(world, batch.names)
    group = {"apiVersion": podgroups.OURS, "kind": "PodGroup", "metadata": {"name": "eager", "namespace": "default"}}
    await world.create({**group, "spec": {"minMember": 2, "priorityClassName": "urgent"}})
    eager = gang("eager", pods("eager", 2, WHOLE, **on(T4)))
    await submit(world, eager)
    message = await said(world, "urgent gives 1000, it counts as 10")
    assert "gang default/eager gets less than the PriorityClass of its PodGroup gives" in message
    await said(world, "gang default/eager waits until all its members fit")
    await holds_nothing(world, eager.names)
    await all_run(world, batch.names)
    await world.delete(podgroups.OURS, "PodGroup", "eager")
