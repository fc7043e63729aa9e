"""The right GPUs or a clear word: what users see who misspell a key, a unit or a model, or ask for what no node has."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from extender.sim.kubelet.status import NodeSpec
from protos.contract import names
from tests.scenarios import embedded, gangs, queue_stories
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.queue_stories import QUEUE, a_queue, known
from tests.scenarios.stories import V100, event, mem, on, phase, refused_with, run, seat, shares, until
from tests.scenarios.world import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")
MIXED = "node-1"
"""Its six GPUs are of two models: two A100 with 39 units, four T4 with 14."""
PLAIN = "node-3"
"""A node without GPUs."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    nodes = [NodeSpec(name=MIXED, profile="mixed"), NodeSpec(name=V100, profile="dgx1-v100"), NodeSpec(name=PLAIN)]
    async with embedded.a_cluster(*nodes) as cluster:
        world = EmbeddedWorld(cluster)
        await world.define(queue_stories.definitions()[0])
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running)
    await queue_stories.tidy_queues(running, QUEUE)


WRONG: dict[str, tuple[Object, Object, str, str]] = {
    "a misspelt annotation": (
        mem(4),
        {"annotations": {"gangshare.io/gpu-modle": "*V100*"}},
        "UnknownKey",
        "did you mean gangshare.io/gpu-model?",
    ),
    "an annotation as a label": (
        mem(4),
        {"labels": {names.GPU_MODEL: "V100"}},
        "UnknownKey",
        "write it as annotation gangshare.io/gpu-model",
    ),
    "a misspelt limit": ({"gangshare.io/gpu-memory": 4}, {}, "UnknownKey", "did you mean gangshare.io/gpu-mem?"),
    "an annotation of another product": (
        {"cpu": "100m"},
        {"annotations": {"gpu-fraction": "0.5"}},
        "ForeignKey",
        "write limit gangshare.io/gpu-slice: 50",
    ),
    "memory with its unit": (
        {names.GPU_MEM: "10Gi"},
        {},
        "AskUnit",
        "expected a number of GiB: write gangshare.io/gpu-mem: 10",
    ),
    "no memory": ({names.GPU_MEM: 0}, {}, "AskZero", "which is no GPU"),
    "memory of the GPU without a unit": (
        mem(4),
        {"annotations": {names.MIN_GPU_MEMORY: "70"}},
        "AskMalformed",
        "write 70Gi",
    ),
    "whole GPUs by gpu-count": (
        {names.WHOLE_GPU: 1},
        {"annotations": {names.GPU_COUNT: "2"}},
        "AskMixed",
        "write nvidia.com/gpu: 2 without gangshare.io/gpu-count",
    ),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_mistake_runs_nowhere_and_an_event_says_what_to_write(world: EmbeddedWorld, what: str) -> None:
    """Such pods ran silently on the wrong hardware, or on a node without GPUs."""
    limits, more, code, words = WRONG[what]
    name = what.replace(" ", "-").lower()
    await world.create_pod(a_pod(name, a_container(limits=limits), **more))
    assert words in await event(world, name, code)
    told = await refused_with(world, name)
    assert words in told or "Insufficient gangshare.io/gpu-memory" in told, "no node has what nobody knows"
    assert await phase(world, name) == "Pending"


async def test_an_entry_of_cordoned_gpus_that_names_no_gpu_is_told_on_the_node(world: EmbeddedWorld) -> None:
    """`cordoned-gpus=99,abc` was ignored without a word."""
    cordon: Object = {"metadata": {"annotations": {names.CORDONED_GPUS: "99,abc"}}}
    await world.patch("v1", "Node", V100, cordon)
    assert "names '99', 'abc': expected indexes or UUIDs of GPUs" in await event(world, V100, "CordonUnreadable")
    await run(world, a_pod("all", a_container(limits={names.WHOLE_GPU: 8})))
    cordon["metadata"]["annotations"][names.CORDONED_GPUS] = None
    await world.patch("v1", "Node", V100, cordon)


async def test_what_no_node_could_take_is_told_apart_from_what_waits_and_is_no_demand_of_its_queue(
    world: EmbeddedWorld,
) -> None:
    """What can never run looked like what waits, and inflated the demand of its queue."""
    await world.create(a_queue("team-a"))
    await known(world, "team-a")
    wishes = {names.QUEUE: "team-a"}
    await run(world, a_pod("first", a_container(limits={names.WHOLE_GPU: 8}), annotations=wishes))
    never: dict[str, Object] = {"whole": {names.WHOLE_GPU: 64}, "memory": mem(500), "slices": {names.GPU_SLICE: 150}}
    for name, limits in never.items():
        await world.create_pod(a_pod(name, a_container(limits=limits), annotations=wishes))
    await world.create_pod(a_pod("late", a_container(limits={names.WHOLE_GPU: 8}), annotations=wishes))
    for name in never:
        assert "even if it were empty" in await event(world, name, "CannotFit")
        assert "no node in the cluster could fit" in await refused_with(world, name)
    assert "8 whole GPUs free" in await event(world, "late", "NoRoom")

    async def counted() -> bool:
        found = await world.get(*QUEUE, "team-a")
        status = found["status"] if found else {}
        return (status["allocated"].get("gpus"), status["requested"].get("gpus"), status["waiting"]) == ("8", "16", 4)

    await until(world, counted, "the queue requests eight GPUs for what runs, and eight for what waits")


async def test_a_model_is_named_as_people_name_it(world: EmbeddedWorld) -> None:
    """`gpu-model: A100` matched nothing, as drivers say `NVIDIA A100-SXM4-80GB`."""
    for name, model in (("a", "A100"), ("t", "T4"), ("v", "V100"), ("glob", "*v100*")):
        await run(world, a_pod(name, a_container(limits=mem(4)), annotations={names.GPU_MODEL: model}))
    books = await world.books()
    models = {gpu["uuid"]: gpu["model"] for node in books["nodes"] for gpu in node["gpus"]}
    given = {name: models[(await shares(world, name))["main"][0].uuid] for name in ("a", "t", "v", "glob")}
    assert given == {
        "a": "NVIDIA A100-PCIE-40GB",
        "t": "Tesla T4",
        "v": "Tesla V100-SXM2-32GB",
        "glob": "Tesla V100-SXM2-32GB",
    }


async def test_a_model_that_no_gpu_has_is_answered_with_the_one_that_was_meant(world: EmbeddedWorld) -> None:
    """There was no "did you mean"."""
    await world.create_pod(a_pod("typo", a_container(limits=mem(4)), annotations={names.GPU_MODEL: "V10O"}))
    assert "did you mean V100?" in await event(world, "typo", "NoMatch")
    assert await phase(world, "typo") == "Pending"


async def test_the_gpus_of_one_container_are_of_one_model_unless_it_allows_several(world: EmbeddedWorld) -> None:
    """A container with two whole GPUs got an A100 and a T4."""
    await run(world, a_pod("three", a_container(limits=mem(36)), annotations={names.GPU_COUNT: "3"}, **on(MIXED)))
    assert min((await seat(world, "three"))[1]) > 1, "three T4s, and no A100"
    await world.create_pod(a_pod("kept", a_container(limits={names.WHOLE_GPU: 3}), **on(MIXED)))
    await event(world, "kept", "NoRoom")
    mixed = {names.MIXED_MODELS: "allow"}
    await run(world, a_pod("any", a_container(limits={names.WHOLE_GPU: 3}), annotations=mixed, **on(MIXED)))
    assert {0, 1} < {*(await seat(world, "any"))[1]}, "both A100s and the last T4"
    assert await phase(world, "kept") == "Pending"
