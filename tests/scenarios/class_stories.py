"""What users see of GpuClasses and of selections that no GPU meets; told on the embedded cluster and on the real one.

Both have node-1 with four T4 and node-2 with eight V100.
"""

from __future__ import annotations

from protos.contract import gpu_class, names
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import V100, event, mem, on, phase, refused_with, run, seat, until
from tests.scenarios.world import Object, World

CLASS = (gpu_class.API_VERSION, gpu_class.KIND)


def a_class(name: str, **spec: object) -> Object:
    return {"apiVersion": gpu_class.API_VERSION, "kind": gpu_class.KIND, "metadata": {"name": name}, "spec": spec}


async def test_a_pod_waits_for_its_class_and_runs_on_the_right_gpu_once_it_is_there(world: World) -> None:
    await world.create_pod(a_pod("classy", a_container(limits=mem(4)), annotations={names.GPU_CLASS: "fast"}))
    assert "GpuClass fast does not exist; the pod waits for it" in await refused_with(world, "classy")
    await world.create(a_class("fast", models=["*V100*"], minMemory="30Gi", description="for training"))

    async def runs() -> bool:
        return await phase(world, "classy") == "Running"

    await until(world, runs, "classy runs")
    assert (await seat(world, "classy"))[0] == V100

    async def counted() -> bool:
        found = await world.get(*CLASS, "fast")
        status = found.get("status", {}) if found else {}
        return [status.get(key) for key in ("gpus", "freeGpus", "nodes")] == [8, 7, 1]

    await until(world, counted, "the class says how many GPUs are of it")


async def test_a_class_narrowed_by_its_pod_holds_with_it(world: World) -> None:
    await world.create(a_class("any", minClockMHz=1000))
    narrow = {names.GPU_CLASS: "any", names.GPU_MODEL: "*T4*"}
    await run(world, a_pod("narrow", a_container(limits=mem(4)), annotations=narrow))
    assert (await seat(world, "narrow"))[0] != V100


async def test_what_no_gpu_meets_is_said_at_once_with_what_there_is(world: World) -> None:
    picky = a_pod("picky", a_container(limits=mem(4)), annotations={names.GPU_MODEL: "*A100*"})
    await world.create_pod(picky)
    assert "no GPU in the cluster matches model *A100*" in await refused_with(world, "picky")
    assert "×8, Tesla" not in await refused_with(world, "picky"), "no numbers for kube-scheduler"
    told = await event(world, "picky", "NoMatch")
    assert told.endswith("it has Tesla V100-SXM2-32GB ×8, Tesla T4 ×4; did you mean V100?")
    joined = {names.LINK: "nvlink", names.GPU_COUNT: "2"}
    await world.create_pod(a_pod("joined", a_container(limits=mem(4)), annotations=joined, **on("node-1")))
    assert "no GPU in the cluster" not in await refused_with(world, "joined"), "there are some, on the other node"


async def tidy_classes(world: World) -> None:
    """Delete every class."""
    for found in await world.items(*CLASS):
        await world.delete(*CLASS, found["metadata"]["name"])
