"""Room that is kept for the first in line: a story for the embedded cluster and the real one.

The extender keeps it for who has waited a second (`ARGS`).
"""

from __future__ import annotations

from protos.contract import names
from tests.scenarios.gangs import all_run, books_agree, pods, started_as_one
from tests.scenarios.jobs.submitted import gang, submit
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import T4, event, on, phase, run, until
from tests.scenarios.world import Object, World

ARGS = ["--backfill-delay=1"]


def lasting(name: str, seconds: int, gpus: int = 1) -> Object:
    """A pod with so many T4 that is expected to run so long."""
    said = {names.EXPECTED_RUNTIME: str(seconds)}
    return a_pod(name, a_container(limits={names.WHOLE_GPU: gpus}), annotations=said, **on(T4))


async def kept_for(world: World, name: str) -> None:
    """Until a start is known for this pod, or its gang."""

    async def kept() -> bool:
        waiting = {pod["name"]: pod for pod in (await world.books()).get("waiting", [])}
        return bool(waiting.get(name, {}).get("earliest"))

    await until(world, kept, f"a start is known for {name}")


async def test_who_ends_in_time_passes_the_first_in_line_and_who_does_not_waits_for_it(world: World) -> None:
    before = ("before-0", "before-1", "before-2")
    await run(world, *(lasting(name, 3600) for name in before))
    first = gang("first", pods("first", 2, {names.WHOLE_GPU: 2}, **on(T4)), expected_runtime="600")
    await submit(world, first)
    await kept_for(world, "first-0")
    await world.create_pod(lasting("long", 7200))
    assert "are reserved for workloads before this pod" in await event(world, "long", "InLine")
    await run(world, lasting("in-time", 900))
    for name in (*before, "in-time"):
        await world.delete_pod("default", name, 1)
    await all_run(world, first.names)
    await started_as_one(world, first.names)
    assert await phase(world, "long") == "Pending"
    for name in first.names:
        await world.delete_pod("default", name, 1)
    await all_run(world, ["long"])
    await books_agree(world)


async def test_nobody_slips_in_while_kube_scheduler_brings_back_a_pod_whose_room_has_come(world: World) -> None:
    before = ("before-0", "before-1")
    await run(world, *(lasting(name, 3600) for name in before))
    await world.create_pod(lasting("first", 600, gpus=4))
    await kept_for(world, "first")
    await world.create_pod(lasting("long", 7200))
    await event(world, "long", "InLine")
    for name in before:
        await world.delete_pod("default", name, 1)
    await all_run(world, ["first"])
    assert await phase(world, "long") == "Pending"
    await books_agree(world)
