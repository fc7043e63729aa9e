"""What users see of queues; told on the embedded cluster and on the real one.

Both have node-1 with four T4 and node-2 with eight V100.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from protos.contract import names, queue
from tests.scenarios.gangs import all_run, bound, holds_nothing, said, until
from tests.scenarios.jobs.submitted import gang, submit
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import T4, event, refused_with
from tests.scenarios.world import Object, World

QUEUE = (queue.API_VERSION, queue.KIND)
VOLCANO = ("scheduling.volcano.sh/v1beta1", "Queue")
DEFINITION = Path(__file__).parents[2] / "manifests/base/extender/queue.yaml"


def definitions() -> list[Object]:
    """The CustomResourceDefinitions of our Queue and of Volcano's, which has no status subresource here."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    group, _, version = VOLCANO[0].partition("/")
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    called = {"kind": "Queue", "listKind": "QueueList", "plural": "queues", "singular": "queue"}
    volcano = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"queues.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": called, "versions": [served]},
    }
    return [yaml.safe_load(DEFINITION.read_text()), volcano]


def a_queue(name: str, **spec: object) -> Object:
    return {"apiVersion": queue.API_VERSION, "kind": queue.KIND, "metadata": {"name": name}, "spec": spec}


def pods(prefix: str, count: int, gpus: int, queue_name: str) -> list[Object]:
    """So many pods with so many whole GPUs each, in a queue."""
    said_of_it = {names.QUEUE: queue_name}
    limits = {names.WHOLE_GPU: gpus}
    return [a_pod(f"{prefix}-{i}", a_container(limits=limits), annotations=said_of_it) for i in range(count)]


async def known(world: World, *wanted: str) -> None:
    """Until the extender has told how these queues stand."""

    async def told() -> bool:
        found = [await world.get(*QUEUE, name) for name in wanted]
        return all(one is not None and one.get("status") for one in found)

    await until(world, told, f"{', '.join(wanted)} have a status")


async def test_a_gang_waits_while_its_queue_is_full_and_starts_when_it_has_room(world: World) -> None:
    await world.create(a_queue("team-a", capability={"gpus": 4}))
    await known(world, "team-a")
    first, second = gang("first", pods("first", 3, 1, "team-a")), gang("second", pods("second", 2, 1, "team-a"))
    await submit(world, first)
    await all_run(world, first.names)
    await submit(world, second)
    told_why = await said(world, "queue team-a may have 4 GPUs: 3 are in use, this asks 2")
    assert "queue team-a has no quota left for this request" in told_why
    await holds_nothing(world, second.names)

    async def told() -> bool:
        found = await world.get(*QUEUE, "team-a")
        status = found["status"] if found else {}
        return (status["allocated"].get("gpus"), status["waiting"], status["running"]) == ("3", 2, 3)

    await until(world, told, "the queue says what it has")
    await world.delete_pod("default", "first-0", 1)
    await all_run(world, second.names)


async def test_the_gang_of_the_queue_that_has_less_of_its_due_goes_first_though_it_is_younger(world: World) -> None:
    for name, weight in (("heavy", 3), ("light", 1), ("others", 1)):
        await world.create(a_queue(name, weight=weight))
    await known(world, "heavy", "light", "others")
    full = [*pods("full", 1, 8, "others"), *pods("h", 1, 2, "heavy"), *pods("l", 1, 1, "light")]
    for pod in full:
        await world.create_pod(pod)
    await all_run(world, ["full-0", "h-0", "l-0"])
    old, young = gang("old", pods("old", 2, 4, "light")), gang("young", pods("young", 2, 4, "heavy"))
    await submit(world, old)
    await said(world, "gang default/old waits until all its members fit")
    await submit(world, young)
    await said(world, "gang default/young waits until all its members fit")
    await world.delete_pod("default", "full-0", 1)
    await all_run(world, young.names)
    assert await bound(world, old.names) == []
    await holds_nothing(world, old.names)


async def test_a_closed_queue_starts_nothing_requests_nothing_and_starts_again_once_it_is_open(world: World) -> None:
    await world.create(a_queue("shut", guarantee={"gpus": 8}))
    await known(world, "shut")
    runs, waits, other = *pods("runs", 1, 1, "shut"), *pods("waits", 1, 1, "shut"), *pods("other", 1, 7, "default")
    await world.create_pod(runs)
    await all_run(world, ["runs-0"])
    await world.patch(*QUEUE, "shut", {"spec": {"closed": True}})
    await world.create_pod(waits)
    assert "queue shut is closed" in await refused_with(world, "waits-0")

    async def told() -> bool:
        status = (await world.get(*QUEUE, "shut") or {})["status"]
        return (status["state"], status["requested"]["gpus"], status["waiting"], status["running"]) == (
            "Closed",
            "1",
            1,
            1,
        )

    await until(world, told, "only what runs counts as requested")
    await world.create_pod(other)
    await all_run(world, ["other-0", "runs-0"])
    await world.patch(*QUEUE, "shut", {"spec": {"closed": False}})
    await all_run(world, ["waits-0"])


async def test_volcanos_queue_is_read_and_closed_by_its_state(world: World) -> None:
    made = {"apiVersion": VOLCANO[0], "kind": VOLCANO[1], "metadata": {"name": "shut"}, "spec": {"weight": 1}}
    await world.create({**made, "status": {"state": "Closed"}})
    await world.create(a_queue("open"))
    await known(world, "open")
    limits, named = {names.GPU_MEM: 4}, {"scheduling.volcano.sh/queue-name": "shut"}

    async def waits() -> bool:
        told = [e.get("reason") for e in await world.events("default", "p")]
        return "QueueClosed" in told

    await world.create_pod(a_pod("p", a_container(limits=limits), annotations=named))
    assert "queue shut" in await refused_with(world, "p")
    await until(world, waits, "it is told that the queue is closed")
    assert "is closed" in await event(world, "p", "QueueClosed")
    await world.delete(*VOLCANO, "shut")
    await world.create(made)
    await all_run(world, ["p"])


async def test_a_queue_admits_the_namespaces_that_it_selects_and_wakes_those_that_come_to_be(world: World) -> None:
    await world.create(a_queue("default"))
    await known(world, "default")
    (waits,) = pods("waits", 1, 1, "of-team-a")
    await world.create_pod(waits)
    assert "queue of-team-a does not exist" in await refused_with(world, "waits-0")
    await world.create(a_queue("of-team-a", namespaceSelector={"matchLabels": {"team": "a"}}))
    sentence = "queue of-team-a does not admit pods of this namespace"

    async def refused() -> bool:
        return sentence in await refused_with(world, "waits-0")

    await until(world, refused, "the pod is refused for its namespace")
    await world.patch("v1", "Namespace", "default", {"metadata": {"labels": {"team": "a"}}})
    try:
        await all_run(world, ["waits-0"])
    finally:
        await world.patch("v1", "Namespace", "default", {"metadata": {"labels": {"team": None}}})
    await has(world, "default", 1)
    assert await bound(world, ["waits-0"]), "what runs goes on, and counts where it would without naming that queue"


async def test_pods_bound_without_us_count_and_their_queue_says_that_it_has_too_much(world: World) -> None:
    await world.create(a_queue("small", capability={"gpus": 1}))
    await known(world, "small")
    for made in pods("theirs", 2, 1, "small"):
        made["spec"]["nodeName"] = T4
        await world.create_pod(made)

    async def within(yes: str) -> bool:
        found = await world.get(*QUEUE, "small")
        told = found["status"]["conditions"] if found else []
        return any((each["type"], each["status"]) == ("WithinCapability", yes) for each in told)

    await until(world, lambda: within("False"), "the queue says that it has too much")
    (late,) = pods("late", 1, 1, "small")
    await world.create_pod(late)
    assert "queue small has no quota left for this request" in await refused_with(world, "late-0")
    for name in ("theirs-0", "theirs-1"):
        await world.delete_pod("default", name, 1)
    await until(world, lambda: within("True"), "it is within its capability again")
    await all_run(world, ["late-0"])


async def has(world: World, name: str, gpus: int) -> None:
    """Until the queue says that its pods have so many GPUs."""

    async def told() -> bool:
        found = await world.get(*QUEUE, name)
        return found is not None and found.get("status", {}).get("allocated", {}).get(queue.GPUS) == str(gpus)

    await until(world, told, f"queue {name} has {gpus} GPUs")


async def tidy_queues(world: World, *kinds: tuple[str, str]) -> None:
    """Delete every queue, of these kinds alone if any are named."""
    for kind in kinds or (QUEUE, VOLCANO):
        for found in await world.items(*kind):
            await world.delete(*kind, found["metadata"]["name"])
