"""`gangshare defrag` between a real extender and a real API server: what it tells, and what it does on request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from extender.cli import console, defrag, inspection
from extender.cli.errors import CommandError
from extender.sim.apiserver.resources import PDBS, PODS
from extender.wire.listings import Plan
from protos.contract import names
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials
from tests.unit.extender_shell.world import ADMIN, Json, World, add_node, add_pod, given, read_pod, until, whole, world

NODES = ["n1", "n2"]


def add_restartable(api: Any, name: str, mem: int, **labels: str) -> Json:
    """A pod of a controller that may be moved."""
    limits = {names.GPU_MEM: str(mem)}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}
    meta = {
        "name": name,
        "namespace": "default",
        "labels": labels,
        "annotations": {names.RESTARTABLE: "true"},
        "ownerReferences": [owner],
    }
    containers = [{"name": "main", "image": "x", "resources": {"limits": limits}}]
    spec = {"schedulerName": names.PROFILE, "containers": containers}
    return whole(api.create(PODS, "default", {"metadata": meta, "spec": spec}, ADMIN))


async def placed(ours: World, pod: Json, node: str) -> None:
    """Filter and bind the pod; then it runs."""
    name = pod["metadata"]["name"]
    assert node in (await ours.filter(pod, [node]))["NodeNames"]
    assert await ours.bind(pod, node) == ""
    ready = [{"type": "Ready", "status": "True"}]
    ours.api.store.put(PODS, ("default", name), {**ours.pod(name), "status": {"phase": "Running", "conditions": ready}})


async def a_town(ours: World) -> Json:
    """Two nodes: a and b, each of 6 units, on the two GPUs of n1; one GPU is free on n2. `train` waits for two GPUs."""
    add_node(ours.api, "n1", gpus=2, mem=10)
    add_node(ours.api, "n2", gpus=2, mem=10)
    await ours.ready()
    await until(lambda: len(ours.extender.engine.nodes) == 2, "both nodes seen")
    for name in ("a", "b"):
        await placed(ours, add_restartable(ours.api, name, 6, app="web"), "n1")
    await placed(ours, add_pod(ours.api, "fixed", 2), "n2")
    train = add_pod(ours.api, "train", 2, resource=names.WHOLE_GPU)
    assert not (await ours.filter(train, NODES))["NodeNames"]
    pods = ours.extender.engine.pods
    await until(lambda: all(p.state == "bound" for p in pods.values() if p.ref.name != "train"), "all are seen bound")
    return train


async def plan(ours: World, key: str = "default/train", most: int = 8, *keep: str) -> Plan:
    body = await asyncio.to_thread(defrag.fetch, ours.status, key, most, list(keep))
    return inspection.decode(body, Plan)


async def carry_out(ours: World, found: Plan) -> list[str]:
    said: list[str] = []
    async with ApiClient(Credentials(ours.server.url)) as client:
        await defrag.carry_out(found, client, ours.status, said.append)
    return said


def evictions(ours: World) -> list[str]:
    return [path.split("/")[-2] for method, path in ours.server.writes if path.endswith("/eviction")]


async def test_it_tells_who_has_to_move_where() -> None:
    async with world() as ours:
        await a_town(ours)
        page = console.page(*defrag.render(await plan(ours)))
        assert page.splitlines() == [
            "POD        MEM  FROM      TO",
            "default/a  6    n1 GPU 0  n2 GPU 0",
            "default/b  6    n1 GPU 1  n2 GPU 1",
            "2 moves make room for default/train: n1 GPU 0 and 1",
        ]
        assert not evictions(ours)
        assert names.RESERVATION not in ours.pod("train")["metadata"].get("annotations", {})


async def test_it_tells_why_no_moves_help() -> None:
    async with world() as ours:
        await a_town(ours)
        said = "2 whole GPUs on one node: n1 takes at least 2 moves, and at most 1 may be made"
        assert (await plan(ours, "default/train", 1)).verdict == said
        said = "2 whole GPUs on one node: no 2-GPU node can be freed; nearest: n2, 1 pod there may not be moved"
        assert (await plan(ours, "default/train", 8, "default/a")).verdict == said
        said = "default/a is not pending: it is bound to n1"
        assert (await plan(ours, "default/a")).verdict == said
        with pytest.raises(CommandError, match="--for is default/nobody: expected a pending pod or gang"):
            await plan(ours, "default/nobody")


async def test_on_request_the_pods_go_and_the_room_is_kept_for_the_one_who_waits() -> None:
    async with world() as ours:
        train = await a_town(ours)
        found = await plan(ours)
        said = await carry_out(ours, found)
        assert said[:2] == ["evicted default/a from n1 GPU 0", "evicted default/b from n1 GPU 1"]
        assert said[2].startswith("reserved for default/train until ")
        assert evictions(ours) == ["a", "b"]
        for name in ("a", "b"):
            ours.api.delete(PODS, ("default", name), {"gracePeriodSeconds": 0})
            again = add_restartable(ours.api, f"{name}-again", 6)
            answer = await ours.filter(again, NODES)
            assert answer["NodeNames"] == ["n2"]
            assert await ours.bind(again, "n2") == ""
        await until(lambda: names.WAKE in read_pod(ours.api, "train")["metadata"]["annotations"], "train is woken")
        assert read_pod(ours.api, "train")["status"]["nominatedNodeName"] == "n1"
        assert (await ours.filter(train, NODES))["NodeNames"] == ["n1"]
        assert await ours.bind(train, "n1") == ""
        assert given(ours.pod("train")) == ["GPU-n1-0", "GPU-n1-1"]


async def test_a_gang_starts_in_the_room_that_is_made_for_it() -> None:
    async with world() as ours:
        await a_town(ours)
        ours.api.delete(PODS, ("default", "train"), {"gracePeriodSeconds": 0})
        said = {names.GROUP: "g", names.MIN_MEMBER: "2"}
        team = [add_pod(ours.api, f"m{i}", 1, resource=names.WHOLE_GPU, annotations=said) for i in range(2)]
        for member in team:
            assert not (await ours.filter(member, NODES))["NodeNames"]
        found = await plan(ours, "default/g")
        gpu, moved = (1, "b") if "n1 GPU 1" in found.verdict else (0, "a")  # the younger one, in whole seconds
        assert found.verdict == f"1 move makes room for gang default/g: n1 GPU {gpu}, n2 GPU 1"
        await carry_out(ours, found)
        assert evictions(ours) == [moved]
        ours.api.delete(PODS, ("default", moved), {"gracePeriodSeconds": 0})
        states = ours.extender.engine.pods
        await until(lambda: [states[m["metadata"]["uid"]].state for m in team] == ["held"] * 2, "the gang starts")
        where = [states[member["metadata"]["uid"]].node for member in team]
        assert await asyncio.gather(*map(ours.bind, team, where)) == ["", ""]
        assert sorted(given(ours.pod(m["metadata"]["name"]))[0] for m in team) == [f"GPU-n1-{gpu}", "GPU-n2-1"]


async def test_a_pod_tells_what_is_kept_for_it() -> None:
    async with world() as ours:
        await a_town(ours)
        await carry_out(ours, await plan(ours))
        _, told = await ours.get("/explain/default/train")
        assert told["reservation"]["seconds"] > 200
        assert told["reservation"] | {"seconds": 0} == {"node": "n1", "gpus": [0, 1], "complete": False, "seconds": 0}
        _, node = await ours.get("/inspect/n1")
        assert [(p["name"], p.get("reserved")) for p in node["gpus"][0]["pods"]] == [("a", None), ("train", True)]


def guard(ours: World, name: str, allowed: int, **labels: str) -> None:
    spec = {"selector": {"matchLabels": labels}, "minAvailable": 2 - allowed}
    meta = {"name": name, "namespace": "default"}
    ours.api.store.put(
        PDBS,
        ("default", name),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": meta,
            "spec": spec,
            "status": {"disruptionsAllowed": allowed},
        },
    )


async def test_nobody_goes_if_a_budget_does_not_allow_all_of_them() -> None:
    async with world() as ours:
        await a_town(ours)
        guard(ours, "web", 1, app="web")
        with pytest.raises(CommandError) as error:
            await carry_out(ours, await plan(ours))
        assert str(error.value).splitlines()[0] == (
            "PodDisruptionBudget default/web allows 1 eviction, and the moves are 2 of its pods: default/a, default/b."
        )
        assert not evictions(ours)
        assert names.RESERVATION not in ours.pod("train")["metadata"].get("annotations", {})


async def test_a_budget_that_is_used_up_meanwhile_ends_it_and_the_room_is_given_up() -> None:
    async with world() as ours:
        await a_town(ours)
        found = await plan(ours)

        async def fault(request: web.BaseRequest) -> web.StreamResponse | None:
            if request.path.endswith("/pods/a/eviction"):
                answer = await ours.server.carry_out(request)
                guard(ours, "web", 0, app="web")
                return answer
            return None

        ours.server.fault = fault
        with pytest.raises(CommandError) as error:
            await carry_out(ours, found)
        assert str(error.value).startswith("default/b cannot be evicted: ")
        assert str(error.value).endswith("\n1 of 2 pods were evicted.")
        assert names.RESERVATION not in ours.pod("train")["metadata"].get("annotations", {})
        keepers = ours.extender.engine.reservations
        await until(lambda: keepers.of(ours.pod("train")["metadata"]["uid"]) is None, "nothing is kept any more")


async def test_nobody_goes_while_the_extender_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defrag, "RESERVE_TIMEOUT_S", 0.5)
    async with world(reservation_ttl_s=0.0) as ours:
        await a_town(ours)
        with pytest.raises(CommandError, match="the extender has not reserved n1 GPU 0 and 1 for default/train"):
            await carry_out(ours, await plan(ours))
        assert not evictions(ours)


async def test_a_pod_that_is_another_one_by_now_is_not_evicted() -> None:
    async with world() as ours:
        await a_town(ours)
        found = await plan(ours)
        ours.api.delete(PODS, ("default", "a"), {"gracePeriodSeconds": 0})
        with pytest.raises(CommandError, match="default/a is gone: plan again"):
            await carry_out(ours, found)
        add_restartable(ours.api, "a", 6)
        with pytest.raises(CommandError, match="default/a is another pod by now"):
            await carry_out(ours, found)
        assert not evictions(ours)


async def test_one_plan_is_made_at_a_time() -> None:
    async with world() as ours:
        await a_town(ours)
        answers = await asyncio.gather(*(ours.get("/defrag/default/train") for _ in range(2)))
        assert sorted(status for status, _ in answers) in ([200, 200], [200, 503])
        status, _ = await ours.get("/defrag/default/train?max-moves=1000")
        assert status == 422
