"""What the commands say of an embedded cluster: `explain`, `top` and `queues`, as a user runs them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from extender.sim.kubelet.status import NodeSpec
from protos.contract import names
from tests.scenarios import commands, embedded, gangs
from tests.scenarios.embedded import EmbeddedWorld
from tests.scenarios.jobs.submitted import gang, submit
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import T4, V100, event, mem, on, refused_with, run
from tests.scenarios.world import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHOLE = {names.WHOLE_GPU: 1}
BURSTS = 8
"""Of pods that come, and go, while others ask how many are pending: the number only grows, then only falls."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[EmbeddedWorld]:
    nodes = [NodeSpec(name=T4, profile="t4x4"), NodeSpec(name=V100, profile="dgx1-v100")]
    async with embedded.a_cluster(*nodes, extender_args=["--scheduler-names=gangshare"]) as cluster:
        yield EmbeddedWorld(cluster)


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: EmbeddedWorld) -> AsyncIterator[EmbeddedWorld]:
    yield running
    await gangs.tidy(running)


def server(world: EmbeddedWorld) -> str:
    return world.cluster.place.status_url


async def explained(world: EmbeddedWorld, pod: str) -> str:
    return await commands.asked(server(world), "explain", "pod", pod)


@pytest.mark.parametrize(
    ("limits", "more", "words", "nodes"),
    [
        (mem(2), {"nodeSelector": {"pool": "none"}}, "didn't match Pod's node affinity/selector", "node selector"),
        (mem(2, cpu=500), {}, "comes nearest with", "too little cpu"),
        (mem(2, **{"amd.com/gpu": 1}), {}, "2 Insufficient amd.com/gpu", "too little amd.com/gpu"),
    ],
    ids=["a label that no node has", "more CPUs than any node has", "a resource of somebody else"],
)
async def test_explain_joins_what_kube_scheduler_alone_knows(
    world: EmbeddedWorld, limits: Object, more: Object, words: str, nodes: str
) -> None:
    """`explain pod` gave up where it should join."""
    await world.create_pod(a_pod("joined", a_container(limits=limits), **more))
    await refused_with(world, "joined")
    told = await explained(world, "joined")
    assert "can never run on these nodes" in told.splitlines()[0]
    assert words in told
    assert f"2 nodes: {nodes}" in told


async def test_explain_knows_a_pod_that_another_scheduler_places_and_one_that_is_gated(world: EmbeddedWorld) -> None:
    """Of a wrong schedulerName it said: kube-scheduler did not ask for it yet."""
    await world.create_pod(a_pod("elsewhere", a_container(limits=mem(2)), schedulerName="volcano"))
    gates = [{"name": "example.com/quota"}]
    await world.create_pod(a_pod("gated", a_container(limits=mem(2)), schedulingGates=gates))
    told = await explained(world, "elsewhere")
    assert "(OtherScheduler)" in told
    assert "schedulerName is volcano" in told
    told = await explained(world, "gated")
    assert "(SchedulingGated)" in told
    assert "example.com/quota" in told


async def test_explain_tells_what_can_never_run_from_what_waits(world: EmbeddedWorld) -> None:
    """What can never run looked like what waits."""
    await run(world, a_pod("first", a_container(limits={names.WHOLE_GPU: 8})))
    await world.create_pod(a_pod("huge", a_container(limits={names.WHOLE_GPU: 64})))
    await world.create_pod(a_pod("late", a_container(limits={names.WHOLE_GPU: 8})))
    await event(world, "huge", "CannotFit")
    await event(world, "late", "NoRoom")
    assert "can never run" in (await explained(world, "huge")).splitlines()[0]
    assert "waits for free GPUs (NoRoom)" in (await explained(world, "late")).splitlines()[0]


async def test_explain_shows_a_pod_what_is_wrong_with_its_gang(world: EmbeddedWorld) -> None:
    """Conflicts were shown by `explain group` alone."""
    least = ({names.MIN_MEMBER: "2"}, {names.MIN_MEMBER: "3"})
    for number, wish in enumerate(least):
        wishes = {names.GROUP: "differ", **wish}
        await world.create_pod(a_pod(f"differ-{number}", a_container(limits=WHOLE), annotations=wishes))
    await event(world, "differ-0", "GangConflict")
    told = await explained(world, "differ-0")
    assert "conflict: the minimum differs" in told
    assert told.count("conflict:") == (await commands.asked(server(world), "explain", "group", "differ")).count(
        "conflict:"
    )


async def test_tables_fit_a_terminal_of_80_columns_and_nothing_is_cut_in_a_pipe(world: EmbeddedWorld) -> None:
    """80 columns broke every table."""
    long = f"a-pod-whose-name-is-longer-than-what-a-terminal-has-room-for-{'x' * 40}"
    await submit(world, gang("a-gang-with-a-long-name-that-does-not-fit", pods_of(13)))
    await world.create_pod(a_pod(long, a_container(limits={names.WHOLE_GPU: 64})))
    await event(world, long, "CannotFit")
    for args in (["top"], ["top", "--pods"], ["top", "--by", "model"], ["queues"], ["classes"]):
        lines = await asyncio.to_thread(commands.on_a_terminal, *args, "--server", server(world))
        assert lines
        assert [line for line in lines if len(line) > commands.COLUMNS] == [], args
    assert long in await commands.asked(server(world), "top")


def pods_of(count: int) -> list[Object]:
    return gangs.pods("member", count, WHOLE)


async def test_a_mistake_in_a_command_is_one_sentence(world: EmbeddedWorld) -> None:
    """Internals leaked: `Value error, 'yaml' is not one of`."""
    for args in (["explain", "pod", "nobody"], ["top", "-o", "xml"], ["explain", "pod", "a/b/c"]):
        ran = await asyncio.to_thread(commands.run, *args, "--server", server(world))
        assert ran.code != 0
        assert "Traceback" not in ran.err
        assert ran.err.count("\n") <= 3, ran.err


# -- How many pods are pending


async def counts(world: EmbeddedWorld) -> tuple[dict[str, int], bool]:
    """What each page says of the number of pending pods, and whether it was the same before and after."""
    async with aiohttp.ClientSession() as session:

        async def page(path: str) -> str:
            async with session.get(f"{server(world)}/{path}") as answer:
                assert answer.status == 200, path
                return await answer.text()

        before = metrics(await page("metrics"))
        (queue,) = json.loads(await page("queues"))["queues"]
        books, pod = json.loads(await page("inspect")), json.loads(await page("explain/default/greedy"))
        found = {
            "queues": queue["waiting"],
            "top": len(books["waiting"]),
            "explain": pod["pendingPods"],
            "queue": json.loads(await page("queues/default"))["waiting"],
        }
        after = metrics(await page("metrics"))
    return {**found, **before}, before == after


def metrics(text: str) -> dict[str, int]:
    """The two metrics that count pending pods."""
    wanted = ("gangshare_pending_pods ", 'gangshare_queue_pods{queue="default",state="waiting"} ')
    lines = [line for line in text.splitlines() if line.startswith(wanted)]
    return {line.rpartition(" ")[0]: int(float(line.rpartition(" ")[2])) for line in lines}


async def test_metrics_top_queues_and_explain_count_the_same_pending_pods_while_pods_come_and_go(
    world: EmbeddedWorld,
) -> None:
    """There were four answers to "how many wait" at one moment."""
    await run(world, a_pod("full", a_container(limits={names.WHOLE_GPU: 4}), **on(T4)))
    await world.create_pod(a_pod("greedy", a_container(limits={"cpu": 500})))
    await refused_with(world, "greedy")
    bursts = [pending(number) for number in range(BURSTS)]
    for burst in bursts:
        for pod in burst:
            await world.create_pod(pod)
        await agree(world)
    for burst in bursts:
        for pod in burst:
            await world.delete_pod("default", pod["metadata"]["name"], 0)
        await agree(world)

    async def greedy_alone_is_left() -> bool:
        return await agree(world) == 1

    await gangs.until(world, greedy_alone_is_left, "all say one")
    assert "1 pod pending: 1 " in await commands.asked(server(world), "top")


async def agree(world: EmbeddedWorld) -> int:
    """The number of pending pods that all pages tell; what is the same before and after was so between."""
    while True:
        found, still = await counts(world)
        if still:
            assert len({*found.values()}) == 1, found
            return found["top"]


def pending(number: int) -> list[Object]:
    """Pods that never start, each for another reason."""
    wishes = {names.GROUP: f"g-{number}", names.MIN_MEMBER: "5"}
    asks = [{names.WHOLE_GPU: 64}, {names.WHOLE_GPU: 5}, {"cpu": 500}]
    kept = [a_pod(f"waits-{number}-{i}", a_container(limits=limits), **on(T4)) for i, limits in enumerate(asks)]
    gates = [{"name": "example.com/quota"}]
    return [
        *kept,
        a_pod(f"member-{number}", a_container(limits=mem(2)), annotations=wishes),
        a_pod(f"gated-{number}", a_container(limits=mem(2)), schedulingGates=gates),
        a_pod(f"typo-{number}", a_container(limits=mem(2)), annotations={"gangshare.io/gpu-modle": "V100"}),
        a_pod(f"other-{number}", a_container(limits=mem(2)), schedulerName="volcano"),
        a_pod(f"plain-{number}", a_container(), schedulerName="volcano"),
    ]
