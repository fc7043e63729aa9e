"""Jobs of other operators, started unchanged: every story runs on the embedded cluster and on the real one."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from protos.contract import names
from tests.scenarios.gangs import all_of, all_run, holds_nothing, phase_of, said, started_as_one, until
from tests.scenarios.jobs import volcano
from tests.scenarios.jobs.mpi import ARTICLE, MpiJob, submitted
from tests.scenarios.jobs.submitted import Submitted, submit
from tests.scenarios.jobs.tensorflow import tf_job
from tests.scenarios.podgroups import OURS, a_pod_group
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.world import Object, World

GangScheduling = Literal["volcano", "scheduler-plugins"]
BOTH: tuple[GangScheduling, ...] = ("volcano", "scheduler-plugins")


async def shows(world: World, job: Submitted, *phases: str) -> None:
    """Until the job's PodGroup shows one of these phases."""
    group = job.group
    assert group

    async def shown() -> bool:
        return await phase_of(world, group) in phases

    await until(world, shown, f"its PodGroup is {' or '.join(phases)}")


async def members(world: World, job: Submitted) -> list[str]:
    """The names of the job's pods, those that its Jobs of batch/v1 make among them, once all exist."""
    made: list[str] = []
    owners = [one["metadata"]["name"] for one in job.jobs]

    async def exist() -> bool:
        labels = [(p["metadata"]["name"], p["metadata"].get("labels", {}).get("job-name")) for p in await world.pods()]
        made[:] = [name for name, owner in labels if owner in owners]
        return len(made) == len(owners)

    await until(world, exist, "the pods of its Jobs exist")
    return [*job.names, *made]


async def starts(world: World, job: Submitted) -> list[Object]:
    """Submit the job; until all its pods run as one gang and its PodGroup says so."""
    await submit(world, job)
    everybody = await members(world, job)
    await all_run(world, everybody)
    await started_as_one(world, everybody)
    await shows(world, job, "Running")
    return await all_of(world, everybody)


async def test_a_tfjob_for_kube_batch_starts_with_its_parameter_server(world: World) -> None:
    pods = await starts(world, tf_job())
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"kube-batch"}


async def test_a_volcano_job_gets_its_pods_made_and_started(world: World) -> None:
    pods = await starts(world, volcano.tensorflow())
    assert {pod["metadata"]["labels"]["volcano.sh/task-spec"] for pod in pods} == {"ps", "worker"}


async def test_a_mindspore_job_starts_its_master_and_two_workers(world: World) -> None:
    assert len(await starts(world, volcano.mindspore())) == 3


@pytest.mark.parametrize("gang_scheduling", BOTH)
async def test_an_mpijob_starts_its_launcher_with_its_workers(world: World, gang_scheduling: GangScheduling) -> None:
    assert len(await starts(world, submitted(MpiJob(gang_scheduling=gang_scheduling)))) == 3


@pytest.mark.parametrize("gang_scheduling", BOTH)
async def test_an_mpijob_with_a_policy_starts_when_its_minimum_can_be(
    world: World, gang_scheduling: GangScheduling
) -> None:
    await a_priority_class(world, "high")
    free = {"cpu": "300m"}  # the guide's 3 cores are more than these machines may have free
    policy = msgspec.structs.replace(ARTICLE, min_available=3, min_resources=free)
    await starts(world, submitted(MpiJob(gang_scheduling=gang_scheduling, policy=policy)))


@pytest.mark.parametrize("gang_scheduling", BOTH)
async def test_an_mpijob_as_in_the_guide_waits_and_says_for_how_many(
    world: World, gang_scheduling: GangScheduling
) -> None:
    await a_priority_class(world, "high")
    job = submitted(MpiJob(gang_scheduling=gang_scheduling, policy=ARTICLE))
    await submit(world, job)
    everybody = await members(world, job)
    assert "3 of 10 members exist" in await said(world, "3 of 10 members exist")
    await shows(world, job, "Inqueue" if gang_scheduling == "volcano" else "Pending")
    await holds_nothing(world, everybody)


async def test_a_podgroup_of_ours_says_how_the_gang_stands(world: World) -> None:
    group = a_pod_group(OURS, "ours", {"minMember": 2})
    pods = [a_pod(f"ours-{i}", a_container(limits={names.WHOLE_GPU: 1}), labels={names.GROUP: "ours"}) for i in (0, 1)]
    job = Submitted(group=group, pods=tuple(pods))
    await world.create(group)
    await world.create_pod(pods[0])
    await shows(world, job, "Assembling")

    async def told() -> bool:
        found = await world.get(OURS, "PodGroup", "ours")
        conditions = found["status"]["conditions"] if found else []
        return any(c["status"] == "True" and "1 of 2 members exist" in c["message"] for c in conditions)

    await until(world, told, "its condition says how many exist")
    await world.create_pod(pods[1])
    await all_run(world, job.names)
    await shows(world, job, "Running")


async def test_a_group_whose_minimum_nobody_says_waits_until_its_podgroup_comes(world: World) -> None:
    job = tf_job()
    for pod in job.pods:
        await world.create_pod(pod)
    await said(world, f"default/{job.names[0].removesuffix('-worker-0')} .*its number of members is unknown")
    await holds_nothing(world, job.names)
    assert job.group
    await world.create(job.group)
    await all_run(world, job.names)
    await started_as_one(world, job.names)


async def a_priority_class(world: World, name: str) -> None:
    if await world.get("scheduling.k8s.io/v1", "PriorityClass", name) is None:
        metadata = {"name": name}
        await world.create(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 1000}
        )
