"""GpuClasses in a cluster: watched where their definition is, told how many GPUs are of them, waited for by pods."""

import asyncio

import pytest

from extender.cluster import act
from extender.sim.apiserver.api import Api
from protos.contract import names
from tests.unit.extender_shell.definitions import (
    OWN,
    add_class,
    class_status,
    define,
    define_classes,
    delete_class,
    edit_class,
    undefine_classes,
)
from tests.unit.extender_shell.world import World, add_node, add_pod, events, until, world

pytestmark = pytest.mark.usefixtures("quick")

STATUS = "/apis/gangshare.io/v1alpha1/gpuclasses/small/status"
NAMED = {names.GPU_CLASS: "small"}
MISSING = "GpuClass small does not exist; the pod waits for it"


async def refused(cluster: World, name: str) -> str:
    """The sentence with which the pod is refused."""
    answer = await cluster.filter(cluster.pod(name), ["node-a"])
    assert not answer.get("NodeNames")
    (sentence,) = answer["FailedAndUnresolvableNodes"].values()
    return str(sentence)


async def offered(cluster: World, name: str) -> bool:
    return bool((await cluster.filter(cluster.pod(name), ["node-a"])).get("NodeNames"))


def woken(cluster: World, name: str) -> bool:
    return names.WAKE in cluster.pod(name)["metadata"].get("annotations", {})


async def until_known(cluster: World, name: str) -> None:
    await until(lambda: name in {pod.ref.name for pod in cluster.extender.engine.pods.values()}, f"{name} is known")


async def test_a_pod_waits_for_definition_and_class_and_is_woken_by_it(cluster: World) -> None:
    add_pod(cluster.api, "p1", annotations=NAMED)
    await until_known(cluster, "p1")
    assert await refused(cluster, "p1") == MISSING
    await until(lambda: [e for e in events(cluster.api) if e["reason"] == "ClassMissing"], "an Event says so")
    define_classes(cluster.api)
    add_class(cluster.api, "small", models=["T4"])
    await until(lambda: woken(cluster, "p1"), "it is woken")
    assert await offered(cluster, "p1")


async def test_classes_are_known_before_the_first_question_is_answered() -> None:
    api = Api()
    add_node(api, "node-a")
    define_classes(api)
    add_class(api, "small", models=["T4"])
    add_pod(api, "p1", annotations=NAMED)
    async with world(api) as cluster:
        await cluster.ready()
        assert await offered(cluster, "p1")


async def test_a_class_that_goes_with_its_definition_is_missing_again(cluster: World) -> None:
    define(cluster.api, OWN)  # of the same API group, which stays
    define_classes(cluster.api)
    add_class(cluster.api, "small", models=["T4"])
    add_pod(cluster.api, "p1", annotations=NAMED)
    await until_known(cluster, "p1")
    await until(lambda: "small" in cluster.extender.engine.classes.known, "the class is known")
    assert await offered(cluster, "p1")
    undefine_classes(cluster.api)
    await until(lambda: not cluster.extender.engine.classes.known, "the class is forgotten")
    assert await refused(cluster, "p1") == MISSING


async def test_the_status_follows_the_gpus_and_equal_ones_are_written_once(cluster: World) -> None:
    define_classes(cluster.api)
    add_class(cluster.api, "small", models=["T4"])
    await until(lambda: class_status(cluster.api, "small").get("gpus") == 2, "it is counted")
    status = class_status(cluster.api, "small")
    assert (status["freeGpus"], status["nodes"]) == (2, 1)
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [("Accepted", "True")]
    add_pod(cluster.api, "p1", node="node-a", mem=16)
    add_node(cluster.api, "node-b", gpus=1)
    await until(lambda: class_status(cluster.api, "small").get("gpus") == 3, "the new node is counted")
    await until(lambda: class_status(cluster.api, "small")["freeGpus"] == 1, "what may be anywhere is free nowhere")
    writes = cluster.server.writes.count(("PATCH", STATUS))
    edit_class(cluster.api, "small", description="the same, with a word about it")
    await until(
        lambda: cluster.extender.engine.classes.known["small"].description.startswith("the same"), "the edit is seen"
    )
    await asyncio.sleep(0.5)
    assert cluster.server.writes.count(("PATCH", STATUS)) == writes


async def test_of_many_changes_in_a_moment_the_first_and_the_latest_are_written(
    cluster: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act, "STATUS_PAUSE_S", 3.0)
    define_classes(cluster.api)
    add_class(cluster.api, "small", models=["T4"])
    await until(lambda: class_status(cluster.api, "small").get("gpus") == 2, "it is counted")
    for number in range(5):
        add_node(cluster.api, f"node-{number}", gpus=1)
        await asyncio.sleep(0.1)
    await until(lambda: class_status(cluster.api, "small")["gpus"] == 7, "the latest")
    assert cluster.server.writes.count(("PATCH", STATUS)) == 2


async def test_a_class_that_cannot_be_read_has_an_event_and_a_condition_until_it_is_mended(cluster: World) -> None:
    define_classes(cluster.api)
    made = add_class(cluster.api, "small", minMemory="80Gi", maxMemory="40Gi")
    add_pod(cluster.api, "p1", annotations=NAMED)
    await until_known(cluster, "p1")
    await until(lambda: [e for e in events(cluster.api) if e["reason"] == "ClassUnreadable"], "an Event says so")
    (event,) = [e for e in events(cluster.api) if e["reason"] == "ClassUnreadable"]
    assert event["involvedObject"]["uid"] == made["metadata"]["uid"]
    assert "maxMemory is '40Gi'" in event["message"]
    await until(lambda: class_status(cluster.api, "small").get("conditions"), "a condition says so")
    (condition,) = class_status(cluster.api, "small")["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Accepted", "False", "ClassUnreadable")
    assert await refused(cluster, "p1") == "GpuClass small cannot be read; the pod waits until it is corrected"
    edit_class(cluster.api, "small", minMemory="8Gi")
    await until(lambda: woken(cluster, "p1"), "it goes on")
    await until(lambda: class_status(cluster.api, "small")["conditions"][0]["status"] == "True", "it is accepted")


async def test_a_class_that_is_deleted_before_its_status_is_written_is_no_failure(cluster: World) -> None:
    define_classes(cluster.api)
    add_class(cluster.api, "small")
    await until(lambda: class_status(cluster.api, "small").get("gpus") == 2, "it is counted")
    delete_class(cluster.api, "small")
    await until(lambda: not cluster.extender.engine.classes.known, "it is forgotten")
    assert cluster.extender.metrics.errors["ClassStatus"] == 0


async def test_the_status_port_lists_classes_and_models(cluster: World) -> None:
    define_classes(cluster.api)
    add_class(cluster.api, "small", models=["T4"], description="for notebooks")
    add_pod(cluster.api, "p1", annotations={names.GPU_CLASS: "huge"})
    await until_known(cluster, "p1")
    await until(lambda: class_status(cluster.api, "small").get("gpus") == 2, "it is counted")
    status, told = await cluster.get("/classes")
    assert status == 200
    assert told["classes"] == [
        {
            "name": "small", "description": "for notebooks", "problem": None,
            "gpus": 2, "free": 2, "nodes": 1, "waiting": 0,
        }
    ]  # fmt: skip
    assert told["missing"] == [{"name": "huge", "waiting": 1}]
    assert [(kind["model"], kind["gpus"], kind["free"], kind["nodes"]) for kind in told["models"]] == [("T4", 2, 2, 1)]
