"""The stories about gangs on the embedded cluster, with the unchanged extender and plugins."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from extender.sim.kubelet import runtime
from extender.sim.kubelet.status import NodeSpec
from tests.scenarios import embedded, gang_stories, podgroups
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.gang_life_stories import *  # noqa: F403
from tests.scenarios.gang_stories import *  # noqa: F403  # the stories are the tests of this module
from tests.scenarios.gangs import all_run, books_agree, bound, pods
from tests.scenarios.jobs.submitted import controlled, gang, operated, submit
from tests.scenarios.operator_stories import *  # noqa: F403
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import T4, V100, delete, mem
from tests.scenarios.world import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    nodes = [NodeSpec(name=T4, profile="t4x4"), NodeSpec(name=V100, profile="dgx1-v100")]
    async with embedded.a_cluster(*nodes, also=("volcano", "kube-batch"), job_backoff_seconds=0.5) as cluster:
        world = EmbeddedWorld(cluster)
        await world.define(podgroups.our_definition(), *podgroups.definitions())  # they come after the extender
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gang_stories.tidy(running)


async def test_a_member_that_its_kubelet_refuses_is_made_good(world: EmbeddedWorld) -> None:
    job = gang("refused", pods("refused", 4, mem(5)))
    first, *others = job.pods
    for pod in [_refused(first), *others]:
        await world.create_pod(pod)
    await world.wait(lambda: _phase_is(world, "refused-0", "Failed"), 60, "the kubelet refuses a member")
    await world.delete_pod("default", "refused-0")
    await world.create_pod(first)
    await all_run(world, job.names)
    await books_agree(world)


async def test_an_extender_killed_between_two_bindings_leaves_no_half_gang(world: EmbeddedWorld) -> None:
    world.kill_extender_at("binding", 3)
    async with operated(world, job := controlled(gang("cut", pods("cut", 8, mem(5))))):
        await world.extender_killed()
        assert 0 < len(await bound(world, job.names)) < 8
        await world.restart_extender()
        await all_run(world, job.names)
    await books_agree(world)


async def test_a_member_made_anew_after_the_others_have_succeeded_starts(world: EmbeddedWorld) -> None:
    short = [a_pod("quick", a_container(limits=mem(5)), run_seconds=1), a_pod("slow", a_container(limits=mem(5)))]
    job = controlled(gang("uneven", short))
    await submit(world, job)
    await world.wait(lambda: _phase_is(world, "quick", "Succeeded"), 60, "one member has succeeded")
    await delete(world, "slow", grace=1)
    await world.create_pod(job.pods[1])
    await all_run(world, ["slow"])


def _refused(pod: Object) -> Object:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "annotations": {**metadata["annotations"], runtime.REFUSE: "OutOfcpu"}}}


async def _phase_is(world: EmbeddedWorld, name: str, phase: str) -> bool:
    pod = await world.pod("default", name)
    return pod is not None and pod["status"]["phase"] == phase
