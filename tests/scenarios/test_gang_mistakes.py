"""What users see who name a gang that runs already, a gang that no model of GPUs has room for, or no gang at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from extender.sim.kubelet.status import NodeSpec
from protos.contract import names
from tests.scenarios import embedded, gangs, podgroups
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.gangs import all_run, bound, holds_nothing, pods, said
from tests.scenarios.jobs.submitted import Submitted, controlled, gang, submit
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import T4, V100, event, mem, on, phase, refused_with, seat, until
from tests.scenarios.world import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")
SAMPLE = Path(__file__).parents[2] / "manifests/samples/gangs/01-annotations.yaml"
WHOLE = {names.WHOLE_GPU: 1}
OURS = "gangshare.io/v1alpha1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    """Four T4 and eight V100. Those who have only begun to run may be evicted."""
    nodes = [NodeSpec(name=T4, profile="t4x4"), NodeSpec(name=V100, profile="dgx1-v100")]
    async with embedded.a_cluster(*nodes, extender_args=["--min-runtime=0"]) as cluster:
        world = EmbeddedWorld(cluster)
        await world.define(podgroups.our_definition())
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running)


def the_sample() -> list[Object]:
    return list(yaml.safe_load_all(SAMPLE.read_text()))


async def test_a_sample_that_names_a_running_gang_waits_outside_until_a_podgroup_declares_it(
    world: EmbeddedWorld,
) -> None:
    """A sample joined a running gang of the same name, and its real workers became surplus."""
    sample = the_sample()
    theirs = [pod["metadata"]["name"] for pod in sample]
    name = sample[0]["metadata"]["annotations"][names.GROUP]
    ours = controlled(gang(name, pods("worker", 4, mem(10)), min_member=3))
    await submit(world, ours)
    await all_run(world, ours.names)
    for pod in sample:
        await world.create_pod(pod)
    for pod in theirs:
        assert "the gang has pods of Training training; this pod is of no controller" in await event(
            world, pod, "GangTaken"
        )
        assert "this pod waits until they have ended or a PodGroup declares the gang" in await refused_with(world, pod)
    await holds_nothing(world, theirs)
    assert await bound(world, ours.names) == ours.names, "nobody was evicted"
    consent = {"apiVersion": OURS, "kind": "PodGroup", "metadata": {"name": name}, "spec": {"minMember": 3}}
    await world.create(consent)
    await all_run(world, theirs)


async def full(world: EmbeddedWorld, **more: str) -> Submitted:
    """A gang of which two are enough has all four T4s, and another of two wants two of them."""
    runs = gang("runs", pods("runs", 4, WHOLE, **on(T4)), min_member=2, **more)
    await submit(world, runs)
    await all_run(world, runs.names)
    await submit(world, gang("wants", pods("wants", 2, WHOLE, **on(T4))))
    return runs


async def test_members_beyond_the_minimum_keep_their_gpus_at_equal_priority(world: EmbeddedWorld) -> None:
    """Running work was evicted at equal priority, though its gang was not elastic."""
    before = await preempted(world)
    runs = await full(world)
    await said(world, "default/wants .*short by 2")
    await world.create_pod(a_pod("later", a_container(limits=WHOLE), **on(V100)))
    await all_run(world, ["later"])
    assert await bound(world, runs.names) == runs.names
    assert await preempted(world) == before


async def preempted(world: EmbeddedWorld) -> list[str]:
    """The pods that were told that they are preempted, in this test or before it."""
    return [told["message"] for told in await world.told("default") if told["reason"] == "Preempted"]


async def test_and_yield_where_the_gang_says_that_it_is_elastic(world: EmbeddedWorld) -> None:
    """Who says so still yields."""
    runs = await full(world, elastic="true")
    await all_run(world, ["wants-0", "wants-1"])
    left = await bound(world, runs.names)
    assert len(left) == 2
    (gone, *_) = [name for name in runs.names if name not in left]
    assert "default/wants" in await event(world, gone, "Preempted")


def alike(prefix: str, count: int) -> Submitted:
    """A gang of so many members with a whole GPU each, which says nothing of models."""
    return gang(prefix, [a_pod(f"{prefix}-{i}", a_container(limits=WHOLE)) for i in range(count)])


async def test_a_gang_gets_gpus_of_one_model(world: EmbeddedWorld) -> None:
    """A worker got an A100 and a T4, its siblings H200s."""
    eight = alike("eight", 8)
    await submit(world, eight)
    await all_run(world, eight.names)
    assert {(await seat(world, name))[0] for name in eight.names} == {V100}


async def test_a_gang_that_fits_on_several_models_only_says_so_and_starts_when_it_allows_them(
    world: EmbeddedWorld,
) -> None:
    """The clear word where one model is too few."""
    nine = alike("nine", 9)
    await submit(world, nine)
    told = await event(world, "nine-0", "GangMixedModels")
    assert "fits only on GPUs of several models, which gangshare.io/mixed-models: allow permits" in told
    await holds_nothing(world, nine.names)
    for name in nine.names:
        await world.patch("v1", "Pod", name, {"metadata": {"annotations": {names.MIXED_MODELS: "allow"}}})
    await all_run(world, nine.names)
    assert {(await seat(world, name))[0] for name in nine.names} == {T4, V100}


async def test_a_minimum_without_a_gang_is_told_and_starts_once_its_gang_is_named(world: EmbeddedWorld) -> None:
    """Of `min-member` without a group it was said: gang default/ waits for its members."""
    for name in ("lost-0", "lost-1"):
        await world.create_pod(a_pod(name, a_container(limits=mem(4)), annotations={names.MIN_MEMBER: "2"}))
    assert "no group is named: expected gangshare.io/group too" in await event(world, "lost-0", "GangUnnamed")
    assert "the pod waits for a gang that it does not name" in await refused_with(world, "lost-0")
    for name in ("lost-0", "lost-1"):
        await world.patch("v1", "Pod", name, {"metadata": {"annotations": {names.GROUP: "found"}}})
    await all_run(world, ["lost-0", "lost-1"])


async def test_members_that_say_different_minimums_are_told_so_and_the_larger_holds(world: EmbeddedWorld) -> None:
    """The conflict was shown nowhere on the pod."""
    for number, least in enumerate(("2", "3")):
        wishes = {names.GROUP: "differ", names.MIN_MEMBER: least}
        await world.create_pod(a_pod(f"differ-{number}", a_container(limits=mem(4)), annotations=wishes))
    assert "the minimum differs" in await event(world, "differ-0", "GangConflict")

    async def waits() -> bool:
        return await phase(world, "differ-1") == "Pending"

    await until(world, waits, "two are too few")
    wishes = {names.GROUP: "differ", names.MIN_MEMBER: "3"}
    await world.create_pod(a_pod("differ-2", a_container(limits=mem(4)), annotations=wishes))
    await all_run(world, ["differ-0", "differ-1", "differ-2"])
