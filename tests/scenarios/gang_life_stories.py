"""What becomes of gangs after their start, or instead of it: a loss that restarts them, a role that ends, a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from protos.contract import names
from tests.scenarios.gangs import (
    all_of,
    all_run,
    books_agree,
    holds_nothing,
    pods,
    said,
    start,
    started_as_one,
    until,
    with_port,
)
from tests.scenarios.jobs.submitted import controlled, gang, kept, submit
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import T4, V100, delete
from tests.scenarios.world import Object, World

WHOLE = {names.WHOLE_GPU: 1}
HOST = "kubernetes.io/hostname"
RUNS_S = 5.0
"""For which a launcher runs: the others have long come by then."""


def with_role(pod: Object, role: str) -> Object:
    """The same pod in this role."""
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "annotations": {**metadata["annotations"], names.ROLE: role}}}


async def gone(world: World, wanted: list[str]) -> None:
    """Until none of these pods exists."""

    async def none() -> bool:
        return await all_of(world, wanted) == []

    await until(world, none, f"{', '.join(wanted)} are gone")


async def test_a_gang_that_restarts_is_whole_again_after_a_loss_by_one_new_start(world: World) -> None:
    job = controlled(gang("anew", pods("anew", 3, WHOLE), on_member_lost="restart"))
    await start(world, job)
    before = {pod["metadata"]["uid"] for pod in await all_of(world, job.names)}
    async with kept(world, job):
        await delete(world, "anew-1", grace=1)

        async def all_anew() -> bool:
            found = await all_of(world, job.names)
            run = [pod["status"].get("phase") for pod in found] == ["Running"] * len(job.names)
            return run and before.isdisjoint(pod["metadata"]["uid"] for pod in found)

        await until(world, all_anew, "all of it runs anew")
    await started_as_one(world, job.names)
    await books_agree(world)


async def test_when_the_launcher_is_done_the_workers_go(world: World) -> None:
    launcher = with_role(a_pod("done-launcher", a_container(), run_seconds=RUNS_S), "launcher")
    workers = [with_role(pod, "worker") for pod in pods("done", 2, WHOLE)]
    job = controlled(gang("done", [launcher, *workers], on_completion="Launcher"))
    await submit(world, job)
    await all_run(world, job.names)
    await gone(world, ["done-0", "done-1"])
    await said(world, "gang default/done .*has done its work")
    (ended,) = await all_of(world, job.names)
    assert ended["status"]["phase"] == "Succeeded"
    await holds_nothing(world, job.names[1:])


async def test_a_gang_that_waits_longer_than_it_may_says_so_and_does_not_start_late(world: World) -> None:
    job = gang("late", pods("late", 3, WHOLE), schedule_timeout_seconds="3")
    *early, last = job.pods
    for pod in early:
        await world.create_pod(pod)
    await said(world, "gang default/late exceeded its schedule timeout")
    await holds_nothing(world, job.names)
    await world.create_pod(last)  # a new member: another try
    await all_run(world, job.names)
    await started_as_one(world, job.names)


def shunning(pod: Object) -> Object:
    """The same pod, on no node with another of its job."""
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": pod["metadata"]["labels"]}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {**pod, "spec": {**pod["spec"], "affinity": affinity}}


def spread(pod: Object) -> Object:
    """The same pod, on nodes that have nearly as many of its job each."""
    told = {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}
    constraint = {**told, "labelSelector": {"matchLabels": pod["metadata"]["labels"]}}
    return {**pod, "spec": {**pod["spec"], "topologySpreadConstraints": [constraint]}}


def labelled(pod: Object, job: str) -> Object:
    return {**pod, "metadata": {**pod["metadata"], "labels": {"job": job}}}


@pytest.mark.parametrize(("apart", "each"), [(with_port, 1), (shunning, 1), (spread, 2)])
async def test_members_that_must_be_on_different_nodes_start_there(
    world: World, apart: Callable[[Object], Object], each: int
) -> None:
    name = apart.__name__.replace("_", "-")
    await start(world, gang(name, [apart(labelled(pod, name)) for pod in pods(name, 2 * each, WHOLE)]))
    found = await all_of(world, [f"{name}-{i}" for i in range(2 * each)])
    assert Counter(pod["spec"]["nodeName"] for pod in found) == {T4: each, V100: each}
