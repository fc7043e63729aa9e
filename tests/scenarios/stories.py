"""What users see, told once: every story runs on the embedded cluster and on the real one.

Both have node-1 with four T4 (14 units each, PCIe) and node-2 with eight V100 (31 units, NVLink in a hybrid mesh), and
plugins whose GPUs are well again after a second.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from protos.contract import allocation, inventory, links, names
from protos.contract.allocation import Share
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.world import Object, World

T4, V100 = "node-1", "node-2"
PLACED_S = 40.0


def mem(amount: int, **more: int) -> dict[str, object]:
    return {names.GPU_MEM: amount, **more}


def on(node: str) -> dict[str, Any]:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


async def phase(world: World, name: str) -> str:
    pod = await world.pod("default", name)
    return pod["status"].get("phase", "Pending") if pod else ""


async def until(world: World, holds: Callable[[], Awaitable[object]], what: str, timeout: float = PLACED_S) -> None:
    await world.wait(holds, timeout, what)


async def run(world: World, *pods: Object) -> None:
    """Create the pods and wait until all run."""
    for pod in pods:
        await world.create_pod(pod)
    wanted = [pod["metadata"]["name"] for pod in pods]

    async def all_run() -> bool:
        return [await phase(world, name) for name in wanted] == ["Running"] * len(wanted)

    await until(world, all_run, f"{', '.join(wanted)} run")


async def shares(world: World, name: str) -> dict[str, tuple[Share, ...]]:
    """The pod's allocation, after checking that every container that runs was given exactly that."""
    pod = await world.pod("default", name)
    assert pod
    found = allocation.decode(pod["metadata"]["annotations"].get(names.ALLOCATION))
    assert found, f"{name} has no allocation"
    for container, given in found.containers.items():
        env = await environment(world, name, container)
        assert sorted(env[names.VISIBLE_DEVICES].split(",")) == sorted(share.uuid for share in given)
    return dict(found.containers)


async def environment(world: World, name: str, container: str = "main") -> dict[str, str]:
    """What the container printed of its environment."""
    env: dict[str, str] = {}

    async def printed() -> bool:
        env.update(await world.container_env("default", name, container))
        return names.VISIBLE_DEVICES in env

    await until(world, printed, f"{name}/{container} prints its environment")
    return env


async def seat(world: World, name: str, container: str = "main") -> tuple[str, list[int]]:
    """Node and GPU indexes of a container."""
    pod = await world.pod("default", name)
    assert pod
    return pod["spec"]["nodeName"], [share.index for share in (await shares(world, name))[container]]


async def delete(world: World, name: str, grace: int | None = 0) -> None:
    """Delete a pod and wait until it is gone; its owner may have made another of that name by then."""
    before = await world.pod("default", name)
    await world.delete_pod("default", name, grace)

    async def gone() -> bool:
        now = await world.pod("default", name)
        return now is None or before is None or now["metadata"]["uid"] != before["metadata"]["uid"]

    await until(world, gone, f"{name} is gone")


async def refused_with(world: World, name: str) -> str:
    """The sentence in the pod's PodScheduled condition, once there is one."""
    message = ""

    async def told() -> bool:
        nonlocal message
        pod = await world.pod("default", name)
        conditions = pod["status"].get("conditions", []) if pod else []
        found = [c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"]
        message = found[0].get("message", "") if found else ""
        return bool(message)

    await until(world, told, f"{name} is refused")
    return message


async def event(world: World, name: str, reason: str) -> str:
    """The message of an Event of that reason about the pod, once there is one."""
    messages: list[str] = []

    async def told() -> bool:
        messages[:] = [e.get("message", "") for e in await world.events("default", name) if e.get("reason") == reason]
        return bool(messages)

    await until(world, told, f"an Event {reason} about {name}")
    return messages[0]


async def test_fractions_pack_on_one_gpu_until_it_is_full_then_the_next(world: World) -> None:
    seats = []
    for i in range(5):
        await run(world, a_pod(f"frac-{i}", a_container(limits=mem(7)), **on(T4)))
        seats.append(await seat(world, f"frac-{i}"))
    gpus = [index for _, indexes in seats for index in indexes]
    assert gpus[0] == gpus[1] != gpus[2] == gpus[3] != gpus[4]


async def test_memory_and_slices_of_one_container_land_on_one_gpu(world: World) -> None:
    await run(world, a_pod("both", a_container(limits={names.GPU_MEM: 5, names.GPU_SLICE: 40})))
    given = (await shares(world, "both"))["main"]
    assert [(share.mem, share.slices) for share in given] == [(5, 40)]
    env = await environment(world, "both")
    assert (env[names.ENV_MEM_MIB], env[names.ENV_SLICES]) == (str(5 * 1024), "40")


async def test_gpu_count_gives_different_gpus(world: World) -> None:
    await run(world, a_pod("pair", a_container(limits=mem(8)), annotations={names.GPU_COUNT: "2"}))
    given = (await shares(world, "pair"))["main"]
    assert [share.mem for share in given] == [4, 4]
    assert len({share.uuid for share in given}) == 2


async def test_two_whole_gpus_on_a_dgx1_are_an_nvlink_pair(world: World) -> None:
    await run(world, a_pod("whole", a_container(limits={names.WHOLE_GPU: 2}), **on(V100)))
    node = next(node for node in await world.nodes() if node["metadata"]["name"] == V100)
    found = inventory.decode(node["metadata"]["annotations"][names.GPUS])
    assert found
    _, indexes = await seat(world, "whole")
    assert links.Topology(found.links).nvlinked(indexes)


async def test_whole_and_fractional_never_share_a_gpu(world: World) -> None:
    await run(world, a_pod("part", a_container(limits=mem(1)), **on(T4)))
    await run(world, a_pod("three", a_container(limits={names.WHOLE_GPU: 3}), **on(T4)))
    await world.create_pod(a_pod("fourth", a_container(limits={names.WHOLE_GPU: 1}), **on(T4)))
    assert "no node with 1 whole GPU free" in await refused_with(world, "fourth")
    await run(world, a_pod("more", a_container(limits=mem(13)), **on(T4)))
    (_, [part]), (_, three), (_, [more]) = [await seat(world, name) for name in ("part", "three", "more")]
    assert part == more
    assert part not in three


async def test_an_init_container_runs_on_its_pods_gpu(world: World) -> None:
    pod = a_pod("staged", a_container(limits=mem(4)), init=(a_container("prepare", limits=mem(6)),), **on(T4))
    await run(world, pod)
    given = await shares(world, "staged")
    assert {share.uuid for share in given["prepare"]} == {share.uuid for share in given["main"]}
    await run(world, a_pod("beside", a_container(limits=mem(8)), **on(T4)))
    assert await seat(world, "beside") == await seat(world, "staged"), "only the peak of 6 is charged"


async def test_containers_of_one_pod_each_get_their_own(world: World) -> None:
    twins = [a_container("one", limits=mem(9)), a_container("two", limits=mem(9))]
    await run(world, a_pod("twins", *twins, **on(T4)))
    given = await shares(world, "twins")
    assert given["one"][0].uuid != given["two"][0].uuid


async def test_a_pod_that_fits_nowhere_waits_with_our_sentence_and_its_numbers(world: World) -> None:
    await world.create_pod(a_pod("huge", a_container(limits=mem(100))))
    assert "could fit 100 GiB on one GPU, even if it were empty" in await refused_with(world, "huge")
    assert "the largest GPU has 31 GiB, on node-2: write gangshare.io/gpu-mem: 31 or less" in await event(
        world, "huge", "CannotFit"
    )


async def test_a_full_cluster_still_says_so_and_binds_as_soon_as_there_is_room(world: World) -> None:
    await run(world, a_pod("v100s", a_container(limits={names.WHOLE_GPU: 8}), **on(V100)))
    await run(world, a_pod("t4s", a_container(limits={names.WHOLE_GPU: 4}), **on(T4)))
    seconds = []
    for i in range(3):
        name = f"next-{i}"
        await world.create_pod(a_pod(name, a_container(limits={names.WHOLE_GPU: 4}), **on(T4)))
        assert "no node with 4 whole GPUs free" in await refused_with(world, name)
        await delete(world, f"next-{i - 1}" if i else "t4s", grace=1)
        freed = time.monotonic()

        async def bound(name: str = name) -> bool:
            pod = await world.pod("default", name)
            return bool(pod and pod["spec"].get("nodeName"))

        await until(world, bound, f"{name} is bound")
        seconds.append(time.monotonic() - freed)
    assert min(seconds) < 1, seconds


async def test_memory_of_a_terminating_pod_is_not_given_away_while_its_container_runs(world: World) -> None:
    await run(world, a_pod("stubborn", a_container(limits={names.WHOLE_GPU: 4}), ignore_term_seconds=5, **on(T4)))
    await world.create_pod(a_pod("heir", a_container(limits=mem(1)), **on(T4)))
    await refused_with(world, "heir")
    await world.delete_pod("default", "stubborn", 20)

    async def stubborn_is_gone() -> bool:
        heir, stubborn = await world.pod("default", "heir"), await world.pod("default", "stubborn")
        assert heir
        runs = stubborn is not None and stubborn["status"]["phase"] == "Running"
        assert not (runs and heir["spec"].get("nodeName")), "its GPU was given away while it ran"
        return stubborn is None

    await until(world, stubborn_is_gone, "the stubborn pod is gone")
    await until(world, lambda: _is(world, "heir", "Running"), "the heir runs")


async def _is(world: World, name: str, wanted: str) -> bool:
    return await phase(world, name) == wanted


async def test_a_pod_bound_by_somebody_else_is_adopted_with_an_event(world: World) -> None:
    await run(world, a_pod("stranger", a_container(limits=mem(7)), nodeName=T4, schedulerName="default-scheduler"))
    assert "GPU" in await event(world, "stranger", "GpuAdopted")

    async def placed() -> bool:
        pod = await world.pod("default", "stranger")
        return bool(pod and names.ALLOCATION in pod["metadata"].get("annotations", {}))

    await until(world, placed, "the stranger's allocation")
    await run(world, a_pod("ours", a_container(limits=mem(7)), **on(T4)))
    assert await seat(world, "ours") == await seat(world, "stranger"), "its charge is known, so the GPU is packed"


async def test_a_pod_bound_by_somebody_else_is_refused_where_no_gpu_has_room(world: World) -> None:
    await run(world, a_pod("full", a_container(limits={names.WHOLE_GPU: 4}), **on(T4)))
    await world.create_pod(
        a_pod("stranger", a_container(limits=mem(7)), nodeName=T4, schedulerName="default-scheduler")
    )
    await until(world, lambda: _is(world, "stranger", "Failed"), "the stranger is refused")
    pod = await world.pod("default", "stranger")
    assert pod
    assert pod["status"]["reason"] in ("UnexpectedAdmissionError", "OutOfgangshare.io/gpu-mem"), pod["status"]
    await until(world, lambda: _is(world, "full", "Running"), "the pod that was there first still runs")


async def test_a_gpu_that_falls_ill_gets_no_new_pods_and_comes_back(world: World) -> None:
    async def healthy(count: int) -> bool:
        node = next(node for node in await world.nodes() if node["metadata"]["name"] == T4)
        gpus = json.loads(node["metadata"]["annotations"][names.GPUS])["gpus"]
        return [gpu["health"] for gpu in gpus].count("ok") == count

    await world.set_gpu_health(T4, 2, "sick:xid 79")
    await until(world, lambda: healthy(3), "one GPU is sick")
    await world.create_pod(a_pod("four", a_container(limits={names.WHOLE_GPU: 4}), **on(T4)))
    await refused_with(world, "four")
    await run(world, a_pod("three", a_container(limits={names.WHOLE_GPU: 3}), **on(T4)))
    assert await seat(world, "three") == (T4, [0, 1, 3])
    await delete(world, "three", grace=1)
    await world.set_gpu_health(T4, 2, "ok")
    await until(world, lambda: _is(world, "four", "Running"), "all four are offered again")


async def test_many_at_once_each_see_their_own(world: World) -> None:
    pods = []
    for i in range(12):
        containers = [a_container(name, limits=mem(2)) for name in ("main", "twin")[: 1 + i % 2]]
        pods.append(a_pod(f"many-{i}", *containers))
    await run(world, *pods)
    taken: dict[str, int] = {}
    for pod in pods:
        for given in (await shares(world, pod["metadata"]["name"])).values():
            for share in given:
                taken[share.uuid] = taken.get(share.uuid, 0) + share.mem
    assert max(taken.values()) <= 31
    assert sum(taken.values()) == 36


async def test_an_extender_that_is_killed_loses_nothing(world: World) -> None:
    await run(world, a_pod("before", a_container(limits=mem(8)), **on(T4)))
    await world.restart_extender(kill=True)
    await run(world, *[a_pod(f"after-{i}", a_container(limits=mem(8)), **on(T4)) for i in range(3)])
    seats = [await seat(world, name) for name in ("before", "after-0", "after-1", "after-2")]
    assert len({(node, *indexes) for node, indexes in seats}) == 4, "8 of 14 units: one pod per GPU"


async def test_a_plugin_that_is_restarted_refuses_nobody(world: World) -> None:
    pods = [a_pod(f"calm-{i}", a_container(limits=mem(2)), **on(T4)) for i in range(6)]
    for i, pod in enumerate(pods):
        await world.create_pod(pod)
        if i == 2:
            await world.restart_plugin(T4)
    for pod in pods:
        name = pod["metadata"]["name"]
        await until(world, lambda name=name: _is(world, name, "Running"), f"{name} runs")  # type: ignore[misc]


async def tidy(world: World) -> None:
    """Delete every pod, wait until both nodes offer everything again."""
    for pod in await world.pods():
        if pod["metadata"]["namespace"] == "default":
            await world.delete_pod("default", pod["metadata"]["name"], 1)

    async def empty() -> bool:
        return not [pod for pod in await world.pods() if pod["metadata"]["namespace"] == "default"]

    await until(world, empty, "no pods are left")
    await asyncio.sleep(0)
