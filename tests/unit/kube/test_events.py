"""Events: one write per object and reason in half a minute, counted."""

from typing import Any

import pytest

from protos.kube import errors, events
from tests.unit.kube.apiserver import Play, Script, lost, ok, refusal
from tests.unit.kube.test_lease import Clock

POD = events.Reference(api_version="v1", kind="Pod", name="p", namespace="ns", uid="u")
NODE = events.Reference(api_version="v1", kind="Node", name="n")


def recorder(api: Any, clock: Clock) -> events.Recorder:
    return events.Recorder(api, component="gangshare", instance="gangshare-0", clock=clock)


async def test_an_event_names_its_object_reason_and_component(script: Script) -> None:
    script.then(ok({}, 201))
    async with script.client() as api:
        assert await recorder(api, Clock()).post(POD, "NoRoom", "no GPU with 24 GiB free", kind="Warning")
    asked = script.asked[0]
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/ns/events")
    assert asked.body["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "namespace": "ns",
        "uid": "u",
    }
    assert asked.body["metadata"]["name"].startswith("p.")
    assert asked.body["source"] == {"component": "gangshare"}
    assert asked.body["reportingInstance"] == "gangshare-0"
    assert (asked.body["type"], asked.body["reason"], asked.body["count"]) == ("Warning", "NoRoom", 1)


async def test_a_message_with_what_a_tenant_wrote_is_printable(script: Script) -> None:
    script.then(ok({}, 201))
    async with script.client() as api:
        await recorder(api, Clock()).post(POD, "NoMatch", "model \x1b[2J\u202e*")
    assert script.asked[0].body["message"] == "model \ufffd[2J\ufffd*"


async def test_repetitions_are_counted_and_told_after_the_pause(script: Script) -> None:
    clock = Clock()
    script.then(ok({}, 201), ok({}))
    async with script.client() as api:
        record = recorder(api, clock)
        told = []
        for clock.now in (100.0, 110.0, 129.9, 130.0):
            told.append(await record.post(POD, "NoRoom", f"at {clock.now}"))
    assert told == [True, False, False, True]
    first, second = script.asked
    assert second.method == "PATCH"
    assert second.path == f"/api/v1/namespaces/ns/events/{first.body['metadata']['name']}"
    assert (second.body["count"], second.body["message"]) == (4, "at 130.0")


async def test_other_objects_and_reasons_do_not_wait(script: Script) -> None:
    script.then(*[ok({}, 201)] * 3)
    async with script.client() as api:
        record = recorder(api, Clock())
        assert await record.post(POD, "NoRoom", "x")
        assert await record.post(POD, "Bound", "x")
        assert await record.post(NODE, "NoRoom", "x")
    assert script.asked[2].path == "/api/v1/namespaces/default/events"
    assert len({asked.body["metadata"]["name"] for asked in script.asked}) == 3


async def test_an_expired_event_is_created_again(script: Script) -> None:
    clock = Clock()
    script.then(ok({}, 201), refusal(404, "NotFound"), ok({}, 201), ok({}))
    async with script.client() as api:
        record = recorder(api, clock)
        for clock.now in (100.0, 4000.0, 8000.0):
            assert await record.post(POD, "NoRoom", "x")
    made, missing, anew, patched = script.asked
    assert (missing.method, anew.method, anew.body["count"]) == ("PATCH", "POST", 2)
    assert anew.body["metadata"]["name"] != made.body["metadata"]["name"]
    assert patched.path.endswith(anew.body["metadata"]["name"])


async def test_an_event_that_failed_is_not_tried_again_before_the_pause(script: Script) -> None:
    clock = Clock()
    script.then(refusal(403, "Forbidden"))
    async with script.client() as api:
        record = recorder(api, clock)
        with pytest.raises(errors.Forbidden):
            await record.post(POD, "NoRoom", "x")
        clock.now = 129.0
        assert not await record.post(POD, "NoRoom", "x")


@pytest.mark.parametrize("trouble", [refusal(503, "ServiceUnavailable"), refusal(429, "TooManyRequests"), lost()])
async def test_an_event_that_met_a_passing_trouble_can_be_tried_again_at_once(script: Script, trouble: Play) -> None:
    script.then(trouble, ok({}, 201))
    async with script.client() as api:
        record = recorder(api, Clock())
        with pytest.raises(errors.ApiError):
            await record.post(POD, "NoRoom", "x")
        assert await record.post(POD, "NoRoom", "x")
    first, second = script.asked
    assert (second.method, second.body["count"]) == ("POST", 1)
    assert second.body["metadata"]["name"] == first.body["metadata"]["name"]


async def test_an_event_that_was_written_although_its_answer_was_lost_counts_as_told(script: Script) -> None:
    script.then(lost(), refusal(409, "AlreadyExists"))
    async with script.client() as api:
        record = recorder(api, Clock())
        with pytest.raises(errors.Unavailable):
            await record.post(POD, "NoRoom", "x")
        assert await record.post(POD, "NoRoom", "x")
        assert not await record.post(POD, "NoRoom", "x")


async def test_a_change_of_an_event_that_met_a_passing_trouble_is_tried_again_with_the_same_count(
    script: Script,
) -> None:
    clock = Clock()
    script.then(ok({}, 201), refusal(503, "ServiceUnavailable"), ok({}))
    async with script.client() as api:
        record = recorder(api, clock)
        assert await record.post(POD, "NoRoom", "x")
        clock.now += 60
        with pytest.raises(errors.Unavailable):
            await record.post(POD, "NoRoom", "x")
        assert await record.post(POD, "NoRoom", "x")
    assert [(asked.method, asked.body["count"]) for asked in script.asked[1:]] == [("PATCH", 2), ("PATCH", 2)]


async def test_messages_and_names_fit_what_the_api_allows(script: Script) -> None:
    script.then(ok({}, 201))
    long = events.Reference(api_version="v1", kind="Pod", name="a" * 229 + "." + "b" * 23, namespace="ns")
    async with script.client() as api:
        await recorder(api, Clock()).post(long, "NoRoom", "x" * 5000)
    body = script.asked[0].body
    assert len(body["message"]) == 1024
    assert len(body["metadata"]["name"]) <= 253
    assert ".." not in body["metadata"]["name"]


async def test_only_so_many_events_are_remembered(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "REMEMBERED", 2)
    script.then(*[ok({}, 201)] * 4)
    async with script.client() as api:
        record = recorder(api, Clock())
        for reason in ("A", "B", "C", "A"):
            assert await record.post(POD, reason, "x")
