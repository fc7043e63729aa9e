"""Leases: the holder by our own clock, and an election under races and lost answers."""

from typing import Any

import msgspec
import pytest
from aiohttp import web

from protos.kube import errors, lease
from tests.unit.kube.apiserver import Play, Script, lost, ok, refusal

WHERE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def held(by: str | None, renewed: str = "t1", version: str = "1", duration: int = 15) -> dict[str, Any]:
    spec = {"holderIdentity": by, "leaseDurationSeconds": duration, "renewTime": renewed, "acquireTime": "t0"}
    meta = {"name": "l", "namespace": "kube-system", "uid": "u", "resourceVersion": version, "labels": {}}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


async def echo(request: web.Request) -> web.StreamResponse:
    """Takes a write as the API server does."""
    body = await request.json()
    body["metadata"]["resourceVersion"] = "99"
    return web.json_response(body)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def steps(script: Script, *scenes: tuple[float, tuple[Play, ...]]) -> list[bool]:
    """Whether we lead after each step of an election, at these times with these answers."""
    clock, leads = Clock(), []
    async with script.client() as api:
        election = lease.Election(api, namespace="kube-system", name="l", identity="me", clock=clock)
        for clock.now, plays in scenes:
            script.then(*plays)
            try:
                leads.append(await election.step())
            except errors.ApiError:
                leads.append(election.leads(clock.now))
    return leads


async def test_a_lease_is_read(script: Script) -> None:
    script.then(ok(held("host_1")))
    async with script.client() as api:
        found = await lease.read(api, "kube-system", "l")
    assert found is not None
    assert (found.metadata.resource_version, found.spec.holder_identity) == ("1", "host_1")
    assert script.asked[0].path == f"{WHERE}/l"


def sighted(*states: tuple[float, dict[str, Any] | None]) -> lease.Sight:
    sight = lease.Sight()
    for now, state in states:
        sight.see(msgspec.convert(state, lease.Lease) if state else None, now)
    return sight


def test_a_first_sight_is_no_renewal() -> None:
    sight = sighted((100, held("host_1")))
    assert sight.holder == "host_1"
    assert not sight.renewed_within(10, 101)


def test_a_renewal_counts_from_when_it_was_seen() -> None:
    sight = sighted((100, held("host_1", "t1")), (102, held("host_1", "t2")), (104, held("host_1", "t2")))
    assert sight.renewed_within(10, 111.9)
    assert not sight.renewed_within(10, 112)


@pytest.mark.parametrize("last", [None, held(None, "t3"), held("", "t3")], ids=["deleted", "no holder", "given back"])
def test_a_lease_without_holder_was_not_renewed(last: dict[str, Any] | None) -> None:
    sight = sighted((100, held("host_1", "t1")), (101, held("host_1", "t2")), (102, last))
    assert sight.holder == ""
    assert not sight.renewed_within(10, 103)


async def test_a_lease_that_is_not_there_is_made(script: Script) -> None:
    assert await steps(script, (100, (refusal(404, "NotFound"), echo))) == [True]
    made = script.asked[1]
    assert (made.method, made.path) == ("POST", WHERE)
    assert made.body["metadata"] == {"name": "l", "namespace": "kube-system"}
    assert made.body["spec"]["holderIdentity"] == "me"
    assert made.body["spec"]["renewTime"] == made.body["spec"]["acquireTime"]


async def test_a_silent_holder_is_replaced_after_the_lease_s_duration_by_our_clock(script: Script) -> None:
    other = ok(held("other"))
    assert await steps(script, (100, (other,)), (114.9, (other,)), (115, (other, echo))) == [False, False, True]
    assert script.asked[-1].body["metadata"]["resourceVersion"] == "1"
    assert script.asked[-1].body["spec"]["leaseTransitions"] == 1


async def test_a_renewing_holder_is_left_alone(script: Script) -> None:
    scenes = [(100.0 + 10 * n, (ok(held("other", f"t{n}")),)) for n in range(5)]
    assert await steps(script, *scenes) == [False] * 5


async def test_our_own_lease_is_renewed_and_keeps_its_age(script: Script) -> None:
    assert await steps(script, (100, (ok(held("me")), echo))) == [True]
    spec = script.asked[1].body["spec"]
    assert (spec["acquireTime"], spec.get("leaseTransitions")) == ("t0", 0)


async def test_what_others_wrote_on_the_lease_stays(script: Script) -> None:
    theirs = held("me")
    theirs["metadata"] |= {
        "labels": {"team": "a"},
        "annotations": {"note": "b"},
        "finalizers": ["example.com/keep"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "v", "controller": True}],
    }
    theirs["spec"]["strategy"] = "OldestEmulationVersion"
    assert await steps(script, (100, (ok(theirs), echo))) == [True]
    written = script.asked[1].body
    assert {key: written["metadata"].get(key) for key in theirs["metadata"]} | {"resourceVersion": "1"} == (
        theirs["metadata"]
    )
    assert written["spec"]["strategy"] == "OldestEmulationVersion"


async def test_a_race_that_was_lost_is_no_leadership(script: Script) -> None:
    assert await steps(script, (100, (refusal(404, "NotFound"), refusal(409, "AlreadyExists")))) == [False]
    assert await steps(script, (100, (ok(held("")), refusal(409, "Conflict")))) == [False]


async def test_leadership_lasts_for_the_renew_deadline_without_an_answer(script: Script) -> None:
    broken = (refusal(503, "ServiceUnavailable"),)
    scenes = [(100.0, (ok(held("me")), echo)), (109.9, broken), (110.0, broken)]
    assert await steps(script, *scenes) == [True, True, False]


async def test_a_renewal_whose_answer_was_lost_is_found_again(script: Script) -> None:
    scenes = [(100.0, (ok(held(None)), lost())), (102.0, (ok(held("me")), echo))]
    assert await steps(script, *scenes) == [False, True]


async def test_a_lease_taken_by_another_ends_leadership_at_once(script: Script) -> None:
    assert await steps(script, (100, (ok(held("me")), echo)), (102, (ok(held("other")),))) == [True, False]


async def test_a_lease_is_given_back(script: Script) -> None:
    script.then(ok(held("me")), echo, echo)
    async with script.client() as api:
        election = lease.Election(api, namespace="kube-system", name="l", identity="me", clock=Clock())
        assert await election.step()
        await election.release()
        assert not election.leads(100)
    assert script.asked[-1].body["spec"]["holderIdentity"] == ""
    assert script.asked[-1].body["metadata"]["resourceVersion"] == "99"
