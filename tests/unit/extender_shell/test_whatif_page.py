"""What-if over HTTP: `POST /whatif` of the status port, and `whatifs` of the aggregated API."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest

from extender.engine.policies.whatif.question import Question
from extender.engine.policies.whatif.whatif import WhatIf
from extender.server.status import WHAT_IFS
from extender.server.visibility.documents import BASE
from extender.server.whatif import page
from extender.wire import whatif as wire
from protos.contract import names
from protos.contract.bounds import WHAT_IF_BODY
from tests.unit.extender_shell import world
from tests.unit.extender_shell.test_pages import stranger
from tests.unit.extender_shell.test_visibility_api import MAY, MINE, OTHERS, Asking, asking, authority
from tests.unit.extender_shell.world import World, until

__all__ = ["asking", "authority", "stranger"]  # fixtures


def a_template(name: str = "x", **limits: str) -> dict[str, Any]:
    amounts = {f"gangshare.io/{key}".replace("_", "-"): amount for key, amount in limits.items()}
    container = {"name": "main", "resources": {"limits": amounts}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": names.PROFILE, "containers": [container]}}


def a_question(*pods: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "spec": {"pods": list(pods), **spec}}


MEM = a_question({"template": a_template(gpu_mem="3")})


async def asked(cluster: World, body: Any) -> tuple[int, Any]:
    async with cluster.session.post(f"{cluster.status}/whatif", json=body) as answer:
        return answer.status, await (answer.json() if answer.status == 200 else answer.text())


async def test_a_pod_that_does_not_exist_is_told_its_node_and_gpus(cluster: World) -> None:
    code, told = await asked(cluster, MEM)
    assert code == 200
    assert told["verdict"] == {"state": "now", "headline": "would start now on node-a", "advice": "submit it"}
    (workload,) = told["workloads"]
    assert workload["pods"] == [{"name": "x", "role": "", "node": "node-a", "gpus": [0]}]
    assert "x" not in {pod.ref.name for pod in cluster.extender.engine.pods.values()}


async def test_alike_pods_are_one_template_and_a_gang_is_told_as_one(cluster: World) -> None:
    gang = a_template(gpu_mem="16")
    gang["metadata"]["annotations"] = {names.GROUP: "g", names.MIN_MEMBER: "3"}
    code, told = await asked(cluster, a_question({"template": gang, "count": 3}))
    assert (code, told["verdict"]) == (
        200,
        {
            "state": "never",
            "headline": "would never start on these nodes, not even if they were empty",
            "advice": "request less, or add nodes on which it fits",
        },
    )
    (workload,) = told["workloads"]
    assert (workload["kind"], [pod["name"] for pod in workload["pods"]]) == ("gang", ["x-0", "x-1", "x-2"])
    more = a_question({"template": gang, "count": 3}, nodes=[{"like": "node-a"}])
    _, told = await asked(cluster, more)
    assert (told["verdict"]["state"], told["further"]["verdict"]["state"]) == ("never", "now")
    assert told["further"]["verdict"]["headline"] == "would start now on node-a, node-a+1"


async def test_a_podgroup_of_the_question_declares_the_gang(cluster: World) -> None:
    pod = a_template(gpu_mem="1")
    pod["metadata"]["annotations"] = {names.GROUP: "g"}
    group = {"apiVersion": "gangshare.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}}
    _, told = await asked(cluster, a_question({"template": pod}, groups=[group | {"spec": {"minMember": 2}}]))
    assert told["workloads"][0]["code"] == "GangAssembling"
    _, told = await asked(
        cluster, a_question({"template": pod, "count": 2}, groups=[group | {"spec": {"minMember": 2}}])
    )
    assert told["verdict"]["state"] == "now"


async def test_several_workloads_are_told_with_the_worst_first(cluster: World) -> None:
    pods = [{"template": a_template("big", gpu_mem="99")}, {"template": a_template("x", gpu_mem="1")}]
    _, told = await asked(cluster, a_question(*pods))
    assert told["verdict"]["state"] == "never"
    assert told["verdict"]["headline"] == "1 of 2 workloads would start now"
    assert told["workloads"][0]["verdict"]["headline"].startswith("would never start, because no node in the cluster")
    _, told = await asked(cluster, a_question(pods[1], pods[1]))
    assert told["verdict"]["headline"] == "all 2 workloads would start now"


BAD = {
    "no JSON": (b"{", "the question cannot be read: Input data was truncated"),
    "a list": (b"[]", "the question cannot be read: Expected `object`, got `array`"),
    "deep": (b'{"spec":' + b"[" * 100_000, "the question cannot be read:"),
    "another kind": (MEM | {"kind": "Pod"}, "the question is of kind visibility.gangshare.io/v1alpha1 Pod: expected"),
    "no pods": (a_question(), "spec.pods is empty: expected pods"),
    "no name": (
        a_question({"template": {"spec": {}}}),
        "required field `metadata` - at `$.spec.pods[0].template`",
    ),
    "a wrong type": (
        a_question({"template": {"metadata": {"name": "x", "annotations": {"a": 4}}}}),
        "Expected `str`, got `int` - at `$.spec.pods[0].template.metadata.annotations[...]`",
    ),
    "a misspelt field": (
        {**MEM, "spec": {**MEM["spec"], "node": []}},
        "the question cannot be read: Object contains unknown field `node` - at `$.spec`",
    ),
    "none of them": (
        a_question({"template": a_template(), "count": 0}),
        "spec.pods[0].count is 0: expected at least 1",
    ),
    "less than none": (
        {**MEM, "spec": {**MEM["spec"], "nodes": [{"like": "node-a", "count": -5}]}},
        "spec.nodes[0].count is -5: expected at least 1",
    ),
    "a huge number": (
        a_question({"template": a_template(), "count": 10**15}),
        "pods of a what-if question: more than 1000000000000, expected at most 1024",
    ),
    "many nodes": (
        MEM | {"spec": MEM["spec"] | {"nodes": [{"like": "node-a", "count": 65}]}},
        "further nodes of a what-if question: 65, expected at most 64",
    ),
    "no such node": (
        MEM | {"spec": MEM["spec"] | {"nodes": [{"like": "moon"}]}},
        "spec.nodes[0].like is 'moon': expected the name of a node of the cluster",
    ),
    "a bound pod": (
        a_question({"template": {"metadata": {"name": "x"}, "spec": {"nodeName": "node-a"}}}),
        "spec.pods[0].template has spec.nodeName: expected a pod without a node",
    ),
    "no group": (
        MEM | {"spec": MEM["spec"] | {"groups": [{"apiVersion": "v1", "kind": "ConfigMap"}]}},
        "spec.groups[0] is of kind v1 ConfigMap: expected a PodGroup that Gangshare reads",
    ),
    "a bad group": (
        MEM
        | {
            "spec": MEM["spec"]
            | {
                "groups": [
                    {
                        "apiVersion": "gangshare.io/v1alpha1",
                        "kind": "PodGroup",
                        "metadata": {"name": "g"},
                        "spec": {"minMember": "four"},
                    }
                ]
            }
        },
        "spec.groups[0]: PodGroup gangshare.io/v1alpha1 /g: spec cannot be read: Expected `int | null`, got `str`",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_question_is_told_what_was_expected(cluster: World, name: str) -> None:
    body, sentence = BAD[name]
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    async with cluster.session.post(f"{cluster.status}/whatif", data=data) as answer:
        assert answer.status == 400
        assert sentence in await answer.text()
    assert (await asked(cluster, MEM))[0] == 200


async def test_a_body_that_is_too_long_is_refused_unread(cluster: World) -> None:
    long = MEM | {"more": "x" * WHAT_IF_BODY.most}
    try:
        code, told = await asked(cluster, long)
    except aiohttp.ClientError:
        return  # the connection is closed before all of it is sent
    assert code == 413, told


async def test_the_page_is_asked_by_post_and_others_by_get(cluster: World) -> None:
    async with cluster.session.get(f"{cluster.status}/whatif") as answer:
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert await answer.text() == "GET /whatif: expected POST"
    async with cluster.session.post(f"{cluster.status}/queues", data=b"x") as answer:
        assert (answer.status, answer.headers["allow"]) == (405, "GET")


async def test_strangers_may_not_ask(cluster: World, stranger: aiohttp.ClientSession) -> None:
    async with stranger.post(f"{cluster.status}/whatif", json=MEM) as answer:
        assert answer.status == 403
        assert (await answer.text()).startswith("/whatif shows tenants' pods")


async def test_an_answer_that_takes_too_long_is_given_up(cluster: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "LONGEST_S", -1.0)
    many = a_question({"template": a_template(gpu_mem="1"), "count": 1000})
    code, told = await asked(cluster, many)
    assert (code, "ask about fewer pods at once" in told) == (503, True)
    monkeypatch.undo()
    assert (await asked(cluster, many))[0] == 200


def a_long_question(number: int) -> dict[str, Any]:
    pods = [{"template": a_template(f"x{each}", gpu_mem="1"), "count": 1} for each in range(700 + number)]
    return a_question(*pods)


async def test_kube_scheduler_is_answered_while_an_answer_is_made(
    cluster: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, engine, begun = world.add_pod(cluster.api, "p1"), cluster.extender.engine, []
    right = engine.what_if

    def what_if(question: Question, now: float) -> WhatIf:
        begun.append(question)
        return right(question, now)

    monkeypatch.setattr(engine, "what_if", what_if)
    asking = asyncio.create_task(asked(cluster, a_long_question(0)))
    await until(lambda: begun, "an answer in the making")
    for _ in range(3):
        assert (await cluster.filter(pod, ["node-a"]))["NodeNames"] == ["node-a"]
        assert not asking.done()
    code, told = await asking
    assert (code, len(told["workloads"])) == (200, 700)


async def test_only_so_many_different_questions_wait_at_once(cluster: World) -> None:
    found = await asyncio.gather(*(asked(cluster, a_long_question(number)) for number in range(8)))
    codes = sorted(code for code, _ in found)
    assert codes == [200] * WHAT_IFS + [503] * (8 - WHAT_IFS)
    assert {told for code, told in found if code == 503} == {"other what-if questions are being answered: try again"}


# -- the aggregated API

PATH = f"{BASE}/namespaces/{{}}/whatifs"
CREATES = {("create", "whatifs", MINE)}


@pytest.fixture(autouse=True)
def rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ada may ask in her namespace; the editor may see nothing else."""
    monkeypatch.setitem(MAY, "ada", MAY["ada"] | CREATES)
    monkeypatch.setitem(MAY, "editor", set(CREATES))
    monkeypatch.setitem(MAY, "admin", MAY["admin"] | CREATES)


def urgent(mem: str) -> dict[str, Any]:
    pod = a_template(gpu_mem=mem)
    pod["spec"]["priority"] = 1000
    return a_question({"template": pod})


async def test_a_question_is_answered_as_an_object_with_its_status(asking: Asking) -> None:
    body = MEM | {"metadata": {"name": "mine"}}
    code, found, _ = await asking.get(PATH.format(MINE), "editor", method="POST", body=body)
    assert (code, found["kind"], found["metadata"]) == (201, "WhatIf", {"name": "mine", "namespace": MINE})
    assert found["status"]["verdict"]["headline"] == "would start now on node-a"
    assert found["status"]["workloads"][0]["namespace"] == MINE
    assert "spec" not in found


async def test_who_may_not_create_is_refused(asking: Asking) -> None:
    code, found, _ = await asking.get(PATH.format(OTHERS), "ada", method="POST", body=MEM)
    assert (code, found["reason"]) == (403, "Forbidden")
    assert found["message"] == (
        'whatifs.visibility.gangshare.io is forbidden: User "ada" cannot create resource "whatifs"'
        f' in API group "visibility.gangshare.io" in the namespace "{OTHERS}"'
    )
    code, found, _ = await asking.get(PATH.format(MINE), "ada")
    assert (code, found["message"]) == (405, "GET is not supported on whatifs: expected create")


async def test_a_question_is_about_pods_of_its_namespace_alone(asking: Asking) -> None:
    pod = a_template(gpu_mem="1")
    pod["metadata"]["namespace"] = OTHERS
    code, found, _ = await asking.get(PATH.format(MINE), "ada", method="POST", body=a_question({"template": pod}))
    assert (code, found["reason"]) == (400, "BadRequest")
    assert found["message"] == (
        f"spec.pods[0].template is in namespace '{OTHERS}': expected '{MINE}', that of the question"
    )
    body = MEM | {"metadata": {"namespace": OTHERS}}
    code, found, _ = await asking.get(PATH.format(MINE), "ada", method="POST", body=body)
    assert (code, found["message"]) == (400, f"metadata.namespace is '{OTHERS}': expected '{MINE}'")


async def test_victims_of_other_namespaces_are_counted_and_not_named(asking: Asking) -> None:
    for pod in asking.cluster.extender.engine.pods.values():  # they have run for long
        pod.info = msgspec.structs.replace(pod.info, since=-1e6, saved=-1e6)
    both = a_question({"template": urgent("16")["spec"]["pods"][0]["template"], "count": 2})
    seen = {}
    for user in ("admin", "ada", "editor"):
        code, found, _ = await asking.get(PATH.format(MINE), user, method="POST", body=both)
        assert code == 201
        told = found["status"]["workloads"]
        seen[user] = (
            sorted(victim["name"] for each in told for victim in each["victims"]),
            sum(each["otherVictims"] for each in told),
        )
        assert user == "admin" or "theirs" not in msgspec.json.encode(found).decode()
    assert seen == {"admin": (["mine", "theirs"], 0), "ada": (["mine"], 1), "editor": ([], 2)}
