"""`gangshare whatif` on the embedded cluster: what it says is what then happens, and asking changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from extender.cli import inspection, manifests
from extender.cli import whatif as view
from extender.sim.kubelet.status import NodeSpec
from extender.ui.question import read
from extender.ui.sources import Status
from extender.ui.views import answered
from extender.wire import whatif as wire
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from tests.scenarios import embedded, gangs
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.gangs import all_run, books_agree, pods, said
from tests.scenarios.jobs.submitted import Submitted, gang, submit
from tests.scenarios.preemption_stories import ARGS, CLASSES, WHOLE, a_single, gone, of
from tests.scenarios.stories import T4, run, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    async with embedded.a_cluster(NodeSpec(name=T4, profile="t4x4"), extender_args=ARGS) as cluster:
        world = EmbeddedWorld(cluster)
        for each in CLASSES:
            await world.create(each)
        await until(world, world.knows_all_gpus, "the extender knows the GPUs")
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running)


def untimed(told: Any) -> Any:
    """The books without their times, which pass."""
    if isinstance(told, dict):
        return {key: untimed(each) for key, each in told.items() if key not in ("since", "seconds")}
    return [untimed(each) for each in told] if isinstance(told, list) else told


async def asked(world: EmbeddedWorld, job: Submitted, *further: str) -> wire.Status:
    """What the command gets to know about a gang, with its real HTTP and manifests."""
    text = yaml.safe_dump_all({"apiVersion": "v1", "kind": "Pod", **pod} for pod in job.pods)
    body = view.body(manifests.read(text, "FILE", "default", gang=False), further)
    before = untimed(await world.books())
    server = world.cluster.place.status_url
    found = await asyncio.to_thread(inspection.fetch, server, "whatif", body=body)
    assert untimed(await world.books()) == before
    return inspection.decode(found, wire.Status)


async def placed(world: EmbeddedWorld, *names: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The node of each pod, and its GPUs."""
    books = await world.books()
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for node in books["nodes"]:
        for gpu in node["gpus"]:
            for pod in gpu["pods"]:
                if pod["name"] in names:
                    _, gpus = found.get(pod["name"], ("", ()))
                    found[pod["name"]] = node["name"], (*gpus, gpu["index"])
    return found


async def test_a_gang_that_would_start_now_starts_where_it_was_told(world: EmbeddedWorld) -> None:
    job = of("batch", "fits", 3)
    told = await asked(world, job)
    assert told.verdict.state == "now"
    await submit(world, job)
    await all_run(world, job.names)
    assert await placed(world, *job.names) == {pod.name: (pod.node, pod.gpus) for pod in told.workloads[0].pods}
    await books_agree(world)


async def test_those_who_would_be_evicted_are_evicted_and_no_others(world: EmbeddedWorld) -> None:
    dear, cheap = of("batch", "costly", 2), of("spot", "cheap", 2)
    for job in (dear, cheap):
        await submit(world, job)
        await all_run(world, job.names)
    urgent = of("urgent", "urgent", 2)
    told = await asked(world, urgent)
    assert told.verdict.state == "preempts"
    assert sorted(victim.name for victim in told.workloads[0].victims) == sorted(cheap.names)
    await submit(world, urgent)
    assert "gang default/urgent preempts" in await said(world, "preempts pods of lower priority: gang")
    await all_run(world, urgent.names)
    await gone(world, *cheap.names)
    await all_run(world, dear.names)


async def test_who_would_wait_waits_and_another_node_would_change_that(world: EmbeddedWorld) -> None:
    await run(world, *(a_single(f"full-{i}", "urgent", 12) for i in range(4)))
    job = gang("waits", pods("waits", 2, WHOLE, priorityClassName="urgent"))
    told = await asked(world, job, T4)
    assert told.verdict.state == "later"
    assert told.further is not None
    assert told.further.verdict.headline == f"would start now on {T4}+1"
    await submit(world, job)

    async def waits() -> bool:
        found = await world.books()
        return any(each["name"] == "waits" and each["code"] == "GangNoRoom" for each in found["groups"])

    await until(world, waits, "the gang waits")


async def test_the_page_asks_the_same_of_the_extender(world: EmbeddedWorld) -> None:
    question = read(f"of=gpus&amount=1&pods=5&together=1&like={T4}&more=1".encode())
    async with ApiClient(Credentials(world.cluster.place.status_url)) as client:
        answer = answered(await Status(client).what_if(question.namespace, question.body))
    status = inspection.decode(bytes(answer.status), wire.Status)
    (workload,) = status.workloads
    assert (workload.kind, workload.verdict.state, answer.places) == ("gang", "never", ())
    assert status.further is not None
    assert status.further.verdict.state == "now"
