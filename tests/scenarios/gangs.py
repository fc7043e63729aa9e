"""What stories about gangs ask of the world."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from protos.contract import allocation, names
from tests.scenarios.jobs.submitted import Submitted, submit
from tests.scenarios.podgroups import KINDS
from tests.scenarios.pods import a_container, a_pod
from tests.scenarios.stories import environment
from tests.scenarios.world import Object, World

_OWNING = (("batch/v1", "Job"), *((kind, "PodGroup") for kind in KINDS), ("policy/v1", "PodDisruptionBudget"))
GANG_S = 90.0
"""Seconds that anything about a gang may take; real containers start one by one."""
PORT = 30_123


def pods(prefix: str, count: int, limits: Mapping[str, object], **more: Any) -> list[Object]:
    """So many alike. The GPUs of the world's nodes are of different models, and they may use all of them."""
    more["annotations"] = {names.MIXED_MODELS: "allow", **more.get("annotations", {})}
    return [a_pod(f"{prefix}-{i}", a_container(limits=limits), **more) for i in range(count)]


def in_namespace(job: Submitted, namespace: str) -> Submitted:
    """The same in another namespace."""
    moved = [{**pod, "metadata": {**pod["metadata"], "namespace": namespace}} for pod in job.pods]
    return Submitted(pods=tuple(moved), waits=job.waits)


async def until(world: World, holds: Callable[[], Awaitable[object]], what: str, timeout: float = GANG_S) -> None:
    await world.wait(holds, timeout, what)


async def all_of(world: World, wanted: Sequence[str], namespace: str = "default") -> list[Object]:
    """These pods, as far as they exist."""
    return [pod for name in wanted if (pod := await world.pod(namespace, name))]


async def bound(world: World, wanted: Sequence[str], namespace: str = "default") -> list[str]:
    """Those of these pods that have a node."""
    found = await all_of(world, wanted, namespace)
    return [pod["metadata"]["name"] for pod in found if pod["spec"].get("nodeName")]


async def all_run(world: World, wanted: Sequence[str], namespace: str = "default") -> None:
    """Until all these pods run."""

    async def running() -> bool:
        found = await all_of(world, wanted, namespace)
        return [pod["status"].get("phase") for pod in found] == ["Running"] * len(wanted)

    await until(world, running, f"{', '.join(wanted)} run")


async def start(world: World, job: Submitted) -> None:
    """Submit the job, until all its pods run as one gang."""
    await submit(world, job)
    await all_run(world, job.names)
    await started_as_one(world, job.names)


async def started_as_one(world: World, wanted: Sequence[str], size: int | None = None) -> None:
    """All these pods carry one start of one gang, and each container sees exactly the GPUs that its pod was given."""
    told = set()
    for pod in await all_of(world, wanted):
        found = allocation.decode(pod["metadata"]["annotations"].get(names.ALLOCATION))
        assert found, f"{pod['metadata']['name']} has no allocation"
        assert found.group, f"{pod['metadata']['name']} was bound without its gang"
        told.add((found.group.key, found.group.epoch, found.group.size))
        await sees_its_gpus(world, pod["metadata"]["name"], found)
    assert len(told) == 1, f"of one start: {told}"
    assert {count for *_, count in told} == {size or len(wanted)}


async def sees_its_gpus(world: World, name: str, given: allocation.Allocation) -> None:
    for container, shares in given.containers.items():
        env = await environment(world, name, container)
        assert sorted(env[names.VISIBLE_DEVICES].split(",")) == sorted(share.uuid for share in shares), name


async def books_of(world: World) -> Object:
    """The books, as soon as the extender answers."""
    books: Object = {}

    async def answers() -> bool:
        books.update(await world.books())
        return bool(books)

    await until(world, answers, "the extender tells its books")
    return books


async def holds_nothing(world: World, wanted: Iterable[str], namespace: str = "default") -> None:
    """None of these pods has a node, and the books keep nothing for them."""
    looked_for = set(wanted)
    assert await bound(world, sorted(looked_for), namespace) == []
    books = await books_of(world)
    kept = [pod for pod in books["pods"] if pod["namespace"] == namespace and pod["name"] in looked_for]
    assert kept == [], "nothing is booked"
    charged = {
        (pod["namespace"], pod["name"]) for node in books["nodes"] for gpu in node["gpus"] for pod in gpu["pods"]
    }
    assert not {(namespace, name) for name in looked_for} & charged, "no GPU is kept"


async def held(world: World, wanted: Iterable[str]) -> list[str]:
    """Those of these pods that the books keep a place for, without their being bound."""
    looked_for, books = set(wanted), await world.books()
    return [p["name"] for p in books.get("pods", ()) if p["name"] in looked_for and p["state"] == "held"]


async def said(world: World, words: str, namespace: str = "default") -> str:
    """The message of an Event that matches, once there is one."""
    messages: list[str] = []

    async def told() -> bool:
        events = [event.get("message", "") for event in await world.told(namespace)]
        messages[:] = [message for message in events if re.search(words, message)]
        return bool(messages)

    await until(world, told, f"an Event that says {words!r}")
    return messages[-1]


async def phase_of(world: World, group: Object) -> str:
    """The phase that a PodGroup shows."""
    found = await world.get(group["apiVersion"], "PodGroup", group["metadata"]["name"])
    return str((found or {}).get("status", {}).get("phase", ""))


async def books_agree(world: World) -> None:
    """No GPU is given twice, and the books know of bound pods what the pods say."""

    async def agree() -> bool:
        books, said = await books_of(world), {}
        for pod in await world.pods():
            found = allocation.decode(pod["metadata"].get("annotations", {}).get(names.ALLOCATION))
            if found and found.containers and pod["status"].get("phase") == "Running":
                said[pod["metadata"]["uid"]] = _uuids(msgspec.to_builtins(found))
        known = {pod["uid"]: _uuids(pod["allocation"]) for pod in books["pods"] if pod["state"] == "bound"}
        assert books["problems"]["overused"] == 0
        return said.items() <= known.items()

    await until(world, agree, "the books agree with the pods")


def _uuids(given: Object) -> dict[str, list[str]]:
    return {name: [share["uuid"] for share in shares] for name, shares in given["containers"].items()}


def with_port(pod: Object) -> Object:
    """The same pod, wanting a port of its node: of all on a node one can have it. Who has it, no plan of ours knows."""
    first, *others = pod["spec"]["containers"]
    wanting = {**first, "ports": [{"containerPort": PORT, "hostPort": PORT}]}
    return {**pod, "spec": {**pod["spec"], "containers": [wanting, *others]}}


async def block_port(world: World, *nodes: str) -> list[str]:
    """A pod on each of these nodes that has the port; their names."""
    blockers = [with_port(a_pod(f"port-{node}", nodeSelector={"kubernetes.io/hostname": node})) for node in nodes]
    for pod in blockers:
        await world.create_pod(pod)
    blocking = [pod["metadata"]["name"] for pod in blockers]
    await all_run(world, blocking)
    return blocking


async def tidy(world: World, namespaces: Sequence[str] = ("default",)) -> None:
    """Delete every Job, PodGroup, budget and pod of these namespaces."""
    for namespace in namespaces:
        for kind in _OWNING:
            for found in await world.items(*kind, namespace):
                await world.delete(*kind, found["metadata"]["name"], namespace)

    async def empty() -> bool:
        left = [pod["metadata"] for pod in await world.pods() if pod["metadata"]["namespace"] in namespaces]
        for metadata in left:
            if "deletionTimestamp" not in metadata:
                await world.delete_pod(metadata["namespace"], metadata["name"], 1)
        return not left

    await until(world, empty, "no pods are left")
