"""What becomes of one Binding, against a server that misbehaves."""

import asyncio
from typing import Any

import msgspec
import pytest

from extender.cluster import bind, hand_over
from extender.cluster.bind import Binder, Outcome
from extender.cluster.leadership import NotLeading, Permission
from extender.engine.types.effects import PodRef, PostBinding
from protos.contract import names
from protos.contract.objects import Pod
from protos.kube.client import ApiClient
from protos.kube.credentials import Credentials, FixedToken
from protos.kube.http1 import ANSWER_S
from tests.unit.engine.story import owned_by
from tests.unit.kube import apiserver
from tests.unit.kube.apiserver import Json, Script, lost, ok, refusal

TEXT = '{"v":1}'
PLACE = PostBinding(PodRef("ns", "p1", "u1"), "node-a", {names.ALLOCATION: TEXT}, None)
DONE = ok({"kind": "Status", "status": "Success"}, 201)
CONFLICT = refusal(409, "Conflict", 'pod p1 is already assigned to node "x"')


@pytest.fixture
async def script() -> Any:
    async with apiserver.serving() as served:
        yield served


def shown(node: str = "", text: str | None = None, uid: str = "u1") -> apiserver.Play:
    """A read of the pod."""
    meta: Json = {"name": "p1", "namespace": "ns", "uid": uid, "resourceVersion": "7"}
    if text is not None:
        meta["annotations"] = {names.ALLOCATION: text}
    return ok({"metadata": meta, "spec": {"nodeName": node} if node else {}})


async def bound(
    script: Script, permission: Permission | None = None, clock: Any = None, answer_s: float = ANSWER_S
) -> Outcome:
    may = permission or Permission()
    more = {"clock": clock} if clock else {}
    async with ApiClient(Credentials(script.url), permit=may.require, answer_s=answer_s) as client:
        return await Binder(client, may, **more).bind(PLACE)


async def test_one_write_carries_uid_node_and_annotations(script: Script) -> None:
    script.then(DONE)
    assert await bound(script) == ("bound", "")
    (asked,) = script.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/ns/pods/p1/binding")
    assert asked.body["metadata"]["uid"] == "u1"
    assert asked.body["metadata"]["annotations"] == {names.ALLOCATION: TEXT}
    assert asked.body["target"]["name"] == "node-a"
    assert "resourceVersion" not in asked.body["metadata"]


async def test_already_bound_by_this_very_binding_is_bound(script: Script) -> None:
    script.then(CONFLICT, shown("node-a", TEXT))
    assert await bound(script) == ("bound", "")


async def test_a_read_of_the_pod_is_consistent(script: Script) -> None:
    script.then(CONFLICT, shown("node-a", TEXT))
    await bound(script)
    assert script.asked[1].query.get("resourceVersion", "") == ""


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (shown("node-b", TEXT), "already assigned to node node-b"),
        (shown("node-a", '{"v":2}'), "with another allocation"),
        (shown("node-a"), "with another allocation"),
        (shown("node-a", TEXT, uid="u2"), "replaced by another"),
        (refusal(404, "NotFound"), "the pod is gone"),
        (shown(), "already assigned"),  # gated or being deleted: refused, and not bound
    ],
)
async def test_a_conflict_is_decided_by_the_pod(script: Script, pod: apiserver.Play, sentence: str) -> None:
    script.then(CONFLICT, pod)
    outcome = await bound(script)
    assert outcome.kind == "lost"
    assert sentence in outcome.sentence


@pytest.mark.parametrize(
    ("code", "reason"), [(404, "NotFound"), (403, "Forbidden"), (422, "Invalid"), (400, "BadRequest")]
)
async def test_a_plain_refusal_is_lost_with_the_servers_words(script: Script, code: int, reason: str) -> None:
    script.then(refusal(code, reason, "the server's words"))
    assert await bound(script) == ("lost", "the server's words")
    assert len(script.asked) == 1


@pytest.mark.parametrize("fault", [lost(), refusal(500, "InternalError"), refusal(504, "Timeout")])
async def test_a_write_without_an_answer_is_decided_by_the_pod(script: Script, fault: apiserver.Play) -> None:
    script.then(fault, shown("node-a", TEXT))
    assert await bound(script) == ("bound", "")


async def test_a_lost_answer_and_a_pod_unbound_is_bound_once_more(script: Script) -> None:
    script.then(lost(), shown(), DONE)
    assert await bound(script) == ("bound", "")
    assert [asked.method for asked in script.asked] == ["POST", "GET", "POST"]
    assert script.asked[0].body == script.asked[2].body


async def test_nothing_is_answered_while_the_pod_cannot_be_read(script: Script) -> None:
    script.then(lost(), refusal(503, "ServiceUnavailable"), lost(), refusal(500, "InternalError"), CONFLICT)
    script.then(shown("node-b", TEXT))
    outcome = await bound(script)
    assert outcome.kind == "lost"
    assert not script.plays


async def test_an_answer_that_never_comes_is_no_answer(script: Script) -> None:
    async def silence(_: Any) -> Any:
        await asyncio.Event().wait()

    script.then(silence, shown("node-a", TEXT))
    assert await bound(script, answer_s=1.0) == ("bound", "")


class Revoked(Permission):
    """Leads for so many writes."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def require(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise NotLeading("the scheduler's Lease is held by host-b_1")


async def test_without_leadership_nothing_is_written(script: Script) -> None:
    outcome = await bound(script, Revoked(0))
    assert outcome == ("lost", "nothing was written: the scheduler's Lease is held by host-b_1")
    assert script.asked == []


async def test_a_write_that_waits_for_retry_after_asks_for_permission_again(script: Script) -> None:
    script.then(refusal(429, "TooManyRequests", retry_after=0))
    outcome = await bound(script, Revoked(1))
    assert outcome.kind == "lost"
    assert len(script.asked) == 1


async def test_in_doubt_without_the_lease_it_only_reads_until_the_write_cannot_land_any_more(script: Script) -> None:
    ticks = iter(range(0, 10_000, 20))
    script.then(lost(), *[shown() for _ in range(20)])
    outcome = await bound(script, Revoked(1), clock=lambda: float(next(ticks)))
    assert outcome.kind == "lost"
    assert [asked.method for asked in script.asked].count("POST") == 1
    assert len(script.asked) > 2


async def test_a_write_in_doubt_is_not_lost_before_the_pod_was_read(script: Script) -> None:
    """The server carried it out, and was away for longer than any request lasts there."""
    now = 0.0

    def away_for_long() -> None:
        nonlocal now
        now += 2 * hand_over.LANDING_S

    async def play(request: Any) -> Any:
        away_for_long()
        return await refusal(503, "ServiceUnavailable")(request)

    script.then(lost(), play, refusal(403, "Forbidden"), shown("node-a", TEXT))
    assert await bound(script, clock=lambda: now) == ("bound", "")


async def test_a_write_that_waited_for_its_connection_asks_for_permission_after_that(script: Script) -> None:
    permission = Revoked(1)

    class Slow(FixedToken):
        async def authorization(self) -> str:
            permission.left = 0
            return ""

    access = Credentials(script.url, tokens=Slow())
    async with ApiClient(access, permit=permission.require, answer_s=0.3) as client:
        with pytest.raises(NotLeading):
            await client.post("/x", b"{}")
    assert script.asked == []


async def test_a_server_that_is_away_is_tried_for_a_while(script: Script) -> None:
    ticks = iter(range(100))
    async with ApiClient(Credentials("http://127.0.0.1:9")) as client:
        outcome = await Binder(client, Permission(), clock=lambda: float(next(ticks))).bind(PLACE)
    assert outcome.kind == "lost"
    assert "127.0.0.1:9" in outcome.sentence
    assert next(ticks) > bind.PATIENCE_S


def test_a_pod_without_gpus_is_judged_by_its_node_alone() -> None:
    place = msgspec.structs.replace(PLACE, annotations={})
    pod = msgspec.convert({"metadata": {"name": "p1", "uid": "u1"}, "spec": {"nodeName": "node-a"}}, Pod)
    assert bind.judge(place, pod) == bind.BOUND


@pytest.mark.parametrize(
    ("managed", "outcome"),
    [
        (owned_by(names.PLUGIN, "status"), "bound"),
        (owned_by(names.EXTENDER, "status"), "bound"),
        (owned_by("kubectl-edit"), "lost"),
        (owned_by(names.PLUGIN), "lost"),
        ([], "lost"),
    ],
    ids=["the plugin", "an extender", "a user", "a user under the plugin's name", "another Binding"],
)
async def test_a_pod_whose_allocation_was_corrected_before_we_looked_is_bound(
    script: Script, managed: list[Json], outcome: str
) -> None:
    meta: Json = {"name": "p1", "namespace": "ns", "uid": "u1", "resourceVersion": "7", "managedFields": managed}
    meta["annotations"] = {names.ALLOCATION: '{"v":1,"corrected":true}'}
    script.then(lost(), ok({"metadata": meta, "spec": {"nodeName": "node-a"}}))
    assert (await bound(script)).kind == outcome
